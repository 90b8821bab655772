// One convolution or linear layer on values whose sums are exact in fp32 in any order: the results
// of the CUDA backend's kernels must equal those of the CPU's bit for bit.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/naive_matmul.h"
#include "cuda/on_both.h"

namespace ada::backend::test {

// Whole numbers from -3 to 3, times `unit`; 0 among them.
inline Values Whole(std::int64_t n, float unit, std::uint64_t seed) {
  RandomStream random(seed, StreamId("whole"));
  Values values(static_cast<std::size_t>(n));
  for (float& v : values) v = unit * (static_cast<float>(random.NextU32() % 7) - 3);
  return values;
}

struct Settings {
  NumberFormat format = kFp16;
  scaling::LayerMethod method = scaling::LayerMethod::kFixed;
  bool reference = false;  // the authors' program
  NumberFormat dw_format = kFp32;
  float unit = 1;   // of w: moves y and dx towards an end of the format
  float scale = 8;  // S of dy
  bool counted = true, measured = true;
  bool dx_moments = true;  // somebody asks for them
  bool stochastic = false;
};

// One layer with its memory on one backend.
struct Layer {
  // change: of the spec, before the op is made.
  Layer(Lab& on, const MatmulCase& c, const Settings& s,
        const std::function<void(MatmulSpec&)>& change = {})
      : lab(on), settings(s) {
    spec.layer = c.name;
    spec.x = lab.Make(c.x, s.format, Whole(c.x.numel(), 1, 1));
    spec.w = lab.Make(c.w(), kFp32, Whole(c.w().numel(), s.unit, 2));
    spec.w_format = s.format, spec.dw_format = s.dw_format;
    if (c.bias) {
      spec.b = lab.Vector(Whole(c.out, s.unit, 3));
      spec.db = lab.Make(spec.b.shape, kFp32);
    }
    spec.y = lab.Make(c.y(), s.format);
    spec.dy = lab.MakeGradient(c.y(), s.format, s.scale, Whole(c.y().numel(), 1, 4));
    SetMoments(Whole(c.y().numel(), 1, 4));
    spec.dx = lab.MakeGradient(c.x, s.format);
    spec.dw = lab.Make(c.w(), kFp32);
    if (s.measured) {
      spec.y_stats = lab.Share<TensorStats>(), spec.w_stats = lab.Share<TensorStats>();
      spec.dw_stats = lab.Share<TensorStats>();
    } else {
      spec.dx.stats = nullptr, spec.dx.moments = nullptr;
    }
    if (!s.dx_moments) spec.dx.moments = nullptr;
    spec.reference = s.reference;
    spec.y_style.stochastic = spec.dx.style.stochastic = s.stochastic;
    spec.y_style.stream = 5, spec.dx.style.stream = 6;
    SetScaler(c);
    if (change) change(spec);
    op = MakeMatmul(*lab, c, spec);
  }
  void SetScaler(const MatmulCase& c) {
    scaling::LayerScaler scaler;
    scaler.rule.method = settings.method, scaler.rule.fixed_scale = 4;
    scaler.rule.reference = settings.reference, scaler.rule.fp16_gradients = true;
    scaler.rule.u_min = kFp16.smallest_subnormal(), scaler.rule.u_max = kFp16.largest();
    scaler.rule.fan = static_cast<double>(c.out);
    spec.scaler = lab.Share(scaler);
  }
  // Sets the moments of dy as the op before would have left them.
  void SetMoments(const Values& dy) {
    TensorMoments m;
    m.min_abs = INFINITY;
    for (const float v : dy) {
      m.mean += static_cast<double>(v) / static_cast<double>(dy.size());
      m.mean_square += static_cast<double>(v * v) / static_cast<double>(dy.size());
      m.min = std::min(m.min, v), m.max = std::max(m.max, v);
      if (v != 0) m.min_abs = std::min(m.min_abs, std::fabs(v));
    }
    spec.dy.moments = lab.Share(m);
  }
  void Step(Pass pass, Findings& findings) const {
    pass.count = settings.counted;
    pass.seed = 17, pass.draw = 3;
    Call(pass);
    Report(pass, findings);
  }
  void Call(const Pass& pass) const {
    op->RefreshWeights(pass);
    op->Forward(pass);
    op->Backward(pass);
  }
  void Report(const Pass& pass, Findings& findings) const {
    const std::string rows = " of " + std::to_string(pass.rows);
    AddRows("y" + rows, spec.y, pass.rows, findings);
    AddRows("dx" + rows, spec.dx.tensor, pass.rows, findings);
    findings.Add("dw" + rows, lab, spec.dw);
    if (spec.b) findings.Add("db" + rows, lab, spec.db);
    const scaling::ScaleDecision d = lab.Fetched(spec.scaler).decision;
    findings.Numbers(
        "decision" + rows,
        {static_cast<double>(d.alpha), static_cast<double>(d.scale_out),
         static_cast<double>(d.limit), static_cast<double>(lab.Fetched(spec.dx.scale))});
    if (!settings.measured) return;
    findings.Add("w stats", lab.Fetched(spec.w_stats));
    findings.Add("y stats", lab.Fetched(spec.y_stats), spec.y.format);
    findings.Add("dx stats", lab.Fetched(spec.dx.stats), spec.dx.tensor.format);
    findings.Add("dw stats", lab.Fetched(spec.dw_stats));
    if (spec.dx.moments != nullptr) findings.Add("dx moments", lab.Fetched(spec.dx.moments));
  }
  void AddRows(const std::string& name, const Tensor& tensor, int rows, Findings& findings) const {
    const Values values = lab.Get(tensor);
    findings.Numbers(name, {values.begin(), values.begin() + rows * tensor.shape.per_image()});
  }

  Lab& lab;
  Settings settings;
  MatmulSpec spec;
  std::unique_ptr<Op> op;
};

inline Pass PassOf(std::int64_t rows) {
  Pass pass;
  pass.rows = static_cast<int>(rows), pass.loss_terms = rows;
  return pass;
}

}  // namespace ada::backend::test
