// One layer whose products round their operands (precision.operands), with all that is counted of
// them, on the CPU backend and on the kernels of the CUDA backend.
#pragma once
#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/compare/checker.h"
#include "backend/compare/tolerances.h"
#include "backend/naive_matmul.h"
#include "cuda/on_both.h"

namespace ada::backend::test {

// Magnitudes over some 30 powers of two, zeros among them, so that blocks lose values and scales
// reach both ends.
inline Values Spread(std::int64_t n, std::uint64_t seed) {
  RandomStream random(seed, StreamId("spread"));
  Values values(static_cast<std::size_t>(n));
  for (float& v : values) {
    const auto exponent = static_cast<int>(random.Below(30)) - 24;
    v = random.Below(16) == 0 ? 0 : std::ldexp(static_cast<float>(random.Normal()), exponent);
  }
  return values;
}

inline OperandRounding InBlocks(const BlockFormat& format) {
  OperandRounding rounding;
  rounding.rounds = true, rounding.block = format, rounding.format = format.element;
  return rounding;
}
inline OperandRounding InFormat(const NumberFormat& format) {
  OperandRounding rounding;
  rounding.rounds = true, rounding.format = format;
  return rounding;
}

struct OperandSettings {
  MatmulCase layer;
  NumberFormat stored = kBf16;
  OperandRoundings operands;   // stats and streams are the lab's
  float per_tensor_scale = 0;  // of plain formats: a per-tensor scale; 0: none
  bool current = false;        // it is made of this very tensor
  bool backward = true;
};

// All six operands alike.
inline OperandSettings AllAlike(const MatmulCase& layer, const OperandRounding& rounding) {
  OperandSettings settings;
  settings.layer = layer;
  settings.operands.fill(rounding);
  return settings;
}

// Every figure, to the last bit.
inline void AddBlocks(const std::string& name, const BlockCounts& c, Findings& findings) {
  findings.Numbers(name, CountsOf(c));
// A device's logarithms may be off by a bit, and sums of them may cancel; signal and noise, the
// last two, are sums of squares.
#ifdef ADA_CUDA_DEVICE
  constexpr double kBound = 1e-12;
#else
  constexpr double kBound = 0;
#endif
  const std::vector<double> figures = TotalsOf(c);
  for (std::size_t i = 0; i < figures.size(); ++i)
    findings.Numbers(name + " figures",
                     {figures[i], static_cast<double>(static_cast<float>(figures[i]))}, kBound,
                     i + 2 < figures.size() ? static_cast<double>(c.blocks) : 0);
}

struct OperandLab {
  OperandLab(Lab& on, const OperandSettings& s) : lab(on), settings(s) {
    const MatmulCase& c = s.layer;
    spec.layer = c.name;
    spec.x = lab.Make(c.x, s.stored, Spread(c.x.numel(), 1));
    spec.w = lab.Make(c.w(), kFp32, Spread(c.w().numel(), 2));
    spec.w_format = s.stored;
    spec.w_stats = lab.Share<TensorStats>();
    spec.y = lab.Make(c.y(), kFp32);
    spec.y_stats = lab.Share<TensorStats>();
    if (c.bias) spec.b = lab.Vector(Spread(c.out, 3));
    if (s.backward) {
      spec.dy = lab.MakeGradient(c.y(), s.stored, 12, Spread(c.y().numel(), 4));
      spec.dx = lab.MakeGradient(c.x, kFp32);
      spec.dw = lab.Make(c.w(), kFp32);
      if (c.bias) spec.db = lab.Make(spec.b.shape, kFp32);
      spec.dw_stats = lab.Share<TensorStats>();
      scaling::LayerScaler scaler;
      scaler.rule.method = scaling::LayerMethod::kFixed, scaler.rule.fixed_scale = 4;
      spec.scaler = lab.Share(scaler);
    }
    for (std::size_t i = 0; i < kOperands; ++i) SetOperand(i);
    op = MakeMatmul(*lab, c, spec);
  }

  void Step(Pass pass, Findings& findings) const {
    pass.seed = 17;
    op->RefreshWeights(pass);
    op->Forward(pass);
    if (settings.backward && pass.training) op->Backward(pass);
    Report(pass, findings);
  }
  // Several passes: counted and not, of all images and of fewer, with a histogram and without.
  void Steps(Findings& findings) const {
    for (int step = 0; step < 4; ++step) {
      Pass pass;
      pass.rows = static_cast<int>(step == 1 && settings.layer.x.n > 1 ? settings.layer.x.n - 1
                                                                       : settings.layer.x.n);
      pass.loss_terms = pass.rows, pass.draw = static_cast<std::uint64_t>(step);
      pass.count = step != 2, pass.bins = step == 0;
      pass.first_row = step == 3 ? 3 : 0;
      pass.edge = 0.25;
      Step(pass, findings);
    }
  }

  Lab& lab;
  OperandSettings settings;
  MatmulSpec spec;
  std::unique_ptr<Op> op;

 private:
  void SetOperand(std::size_t i) {
    OperandRounding& rounding = spec.operands[i] = settings.operands[i];
    if (!rounding.rounds) return;
    rounding.style.stream = 100 + i, rounding.hadamard.stream = 7;
    rounding.style.bins = lab.Share<ExponentBins>();
    rounding.stats = lab.Share<TensorStats>();
    if (rounding.block) rounding.block_counts = lab.Share<BlockCounts>();
    if (settings.per_tensor_scale == 0 || rounding.block) return;
    auto* scaler = lab.Share(scaling::TensorScaler{settings.per_tensor_scale});
    rounding.style.per_tensor_scale = scaler;
    if (!settings.current) return;
    rounding.current = scaler;
    rounding.rule.format_max = rounding.format.largest();
  }
  void AddRows(const std::string& name, const Tensor& tensor, int rows, Findings& findings) const {
    Tensor part = tensor;
    part.shape.n = rows;
    findings.Near(name, lab, part, 1e-6);
  }
  // A gradient of a weight is a sum over images and the places of the smaller of x and y.
  double TermsOfDw() const {
    const Shape small = settings.layer.transposed ? settings.layer.x : settings.layer.y();
    return static_cast<double>(small.n) * static_cast<double>(small.h * small.w);
  }
  void Report(const Pass& pass, Findings& findings) const {
    AddRows("y", spec.y, pass.rows, findings);
    const bool backward = settings.backward && pass.training;
    if (backward) {
      AddRows("dx", spec.dx.tensor, pass.rows, findings);
      findings.Near("dw", lab, spec.dw, compare::SumError(TermsOfDw(), 1));
      if (spec.b) findings.Near("db", lab, spec.db, 1e-6);
    }
    for (std::size_t i = 0; i < kOperands; ++i) {
      const OperandRounding& rounding = spec.operands[i];
      if (!rounding.rounds || (!backward && i > 1)) continue;
      const std::string name = kOperandNames[i];
      findings.Add(name, lab.Fetched(rounding.stats));
      findings.Numbers(name + " bins", BinsOf(lab.Fetched(rounding.style.bins)));
      if (rounding.block) AddBlocks(name + " blocks", lab.Fetched(rounding.block_counts), findings);
      if (rounding.current != nullptr)
        findings.Numbers(name + " scale",
                         {static_cast<double>(lab.Fetched(rounding.current).scale)});
    }
  }
};

inline void CheckOperands(const OperandSettings& settings) {
  CAPTURE(settings.layer.name);
  CAPTURE(FormatName(settings.stored));
  OnBoth([&](Lab& lab, Findings& findings) { OperandLab(lab, settings).Steps(findings); });
}

}  // namespace ada::backend::test
