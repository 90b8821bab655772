// Convolution and linear layers of the CUDA backend against the CPU's: every shape, format, rule
// and style of rounding.
#include <doctest/doctest.h>

#include "backend/matmul_cases.h"
#include "cuda/agreement_lab.h"

namespace ada::backend::test {
namespace {

struct Rule {
  scaling::LayerMethod method = scaling::LayerMethod::kFixed;
  bool reference = false, power_of_two = true;
  double fixed_scale = 4;
};

std::size_t Size(const Shape& shape) { return static_cast<std::size_t>(shape.numel()); }

scaling::LayerScaler ScalerOf(const MatmulCase& c, const Roles& r, const Rule& rule) {
  scaling::LayerScaler scaler;
  scaler.rule.method = rule.method, scaler.rule.reference = rule.reference;
  scaler.rule.power_of_two = rule.power_of_two, scaler.rule.fixed_scale = rule.fixed_scale;
  scaler.rule.u_min = r.dx.smallest_subnormal(), scaler.rule.u_max = r.dx.largest();
  scaler.rule.fp16_gradients = r.dy == kFp16;
  scaler.rule.fan = static_cast<double>(c.out * c.kernel[0] * c.kernel[1]);
  scaler.state.state_scale = 32;
  return scaler;
}

MatmulSpec SpecOf(Agreement& both, const MatmulCase& c, const Roles& r, const Rule& rule,
                  double sigma) {
  Lab& lab = both.lab;
  MatmulSpec s;
  s.layer = c.name;
  s.x = lab.Make(c.x, r.x, Normal(Size(c.x), 1, 1));
  s.w = lab.Make(c.w(), kFp32, Normal(Size(c.w()), 0.3, 2));
  s.w_format = r.w, s.w_style = both.Style(r.stochastic, 2, 0);
  if (c.bias) {
    s.b = lab.Vector(Normal(static_cast<std::size_t>(c.out), 1, 3));
    s.db = lab.Make(s.b.shape, kFp32);
  }
  s.y_style = both.Style(r.stochastic, 1, r.y_scale);
  s.y = both.Out(c.y(), r.y, s.y_style);
  s.y_stats = lab.Share(TensorStats()), s.w_stats = lab.Share(TensorStats());
  s.dw_stats = lab.Share(TensorStats());
  s.dy = both.InGradient(c.y(), r.dy, Normal(Size(c.y()), sigma, 4), 16);
  s.dx = both.OutGradient(c.x, r.dx, both.Style(r.stochastic, 3, r.dx_scale));
  s.dw = lab.Make(c.w(), kFp32);
  s.dw_format = r.dw, s.dw_style = both.Style(r.stochastic, 4, 0);
  s.reference = rule.reference;
  s.scaler = lab.Share(ScalerOf(c, r, rule));
  return s;
}

void CheckMatmul(const MatmulCase& c, const Roles& r, const Rule& rule, double sigma = 1e-3) {
  CAPTURE(Text(c));
  Agreement both;
  const MatmulSpec spec = SpecOf(both, c, r, rule, sigma);
  const auto op = MakeMatmul(*both.lab, c, spec);
  both.Steps(*op, c.x, [&](int step) {
    both.lab.Set(spec.x, Normal(Size(c.x), 1, 100 + static_cast<std::uint64_t>(step)));
  });
}

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("agreement: products of every shape") {
    const std::vector<Roles>& roles = AllRoles();
    std::size_t i = 0;
    for (const auto& cases :
         {SmallMatmuls(), TransposedMatmuls(), SomeKernelMatmuls(), RandomMatmuls(12, 2e5, 9)})
      for (const MatmulCase& c : cases) CheckMatmul(c, roles[i++ % 3], {});
  }

  TEST_CASE("agreement: products in every mixture of formats and styles") {
    const std::vector<MatmulCase> cases = SmallMatmuls();
    int index = 0;
    for (const Roles& r : AllRoles()) {
      CAPTURE(index++);
      CheckMatmul(cases[2], r, {});
      CheckMatmul(cases[23], r, {});
    }
  }

  TEST_CASE("agreement: products under every rule, ours and the authors'") {
    using scaling::LayerMethod;
    const MatmulCase conv = SmallMatmuls()[2], linear = SmallMatmuls()[20],
                     transposed = TransposedMatmuls()[8];
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kFixed, LayerMethod::kApproxRange,
          LayerMethod::kLognormal, LayerMethod::kAbsRange, LayerMethod::kElementWiseRange,
          LayerMethod::kExactRange, LayerMethod::kState})
      for (const bool reference : {false, true})
        for (const bool power_of_two : {true, false}) {
          if (reference && (method == LayerMethod::kExactRange || method == LayerMethod::kState))
            continue;
          CAPTURE(static_cast<int>(method));
          CAPTURE(reference);
          for (const std::size_t role : {1, 2, 3}) {
            CAPTURE(role);
            CheckMatmul(conv, AllRoles()[role], {method, reference, power_of_two}, 1e-6);
            CheckMatmul(transposed, AllRoles()[role], {method, reference, power_of_two}, 1e-6);
            CheckMatmul(linear, AllRoles()[role], {method, reference, power_of_two}, 1e-5);
          }
        }
  }

  TEST_CASE("agreement: products whose values overflow, underflow or are not finite") {
    const MatmulCase conv = SmallMatmuls()[2];
    for (const Roles& r : AllRoles()) {
      CheckMatmul(conv, r, {scaling::LayerMethod::kFixed, false, true, 0x1p20}, 1);
      CheckMatmul(conv, r, {scaling::LayerMethod::kFixed, false, true, 0x1p-12}, 1e-6);
    }
    for (const float bad : {INFINITY, NAN}) {
      Agreement both;
      const MatmulSpec spec =
          SpecOf(both, conv, AllRoles()[1], {scaling::LayerMethod::kApproxRange}, 1e-3);
      Values dy = both.lab.Get(spec.dy.tensor);
      dy[7] = bad;
      both.lab.Set(spec.dy.tensor, dy);
      both.Steps(*MakeMatmul(*both.lab, conv, spec), conv.x);
    }
  }

  TEST_CASE("agreement: products of an evaluation") {
    for (const MatmulCase& c : SmallMatmuls()) {
      Agreement both;
      MatmulSpec spec = SpecOf(both, c, AllRoles()[1], {}, 1);
      spec.dy = spec.dx = {}, spec.dw = spec.db = {}, spec.scaler = nullptr;
      spec.dw_stats = nullptr;
      const auto op = MakeMatmul(*both.lab, c, spec);
      Pass pass;
      pass.rows = static_cast<int>(c.x.n), pass.training = false;
      op->RefreshWeights(pass);
      for (int i = 0; i < 3; ++i) op->Forward(pass);
    }
  }
}

}  // namespace
}  // namespace ada::backend::test
