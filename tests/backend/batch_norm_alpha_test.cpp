// A batch norm that chooses a scale: alpha from dy after its mask and from the factors, whatever is
// fused to it; dx is alpha times what it would be, rounded once; nothing else changes.
#include <doctest/doctest.h>

#include "backend/method_formulas.h"
#include "backend/naive_batch_norm.h"
#include "scaling/policies/policies.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;
const float kInf = std::numeric_limits<float>::infinity();
constexpr float kScale = 8;

// A batch norm in `format` under a rule of `method`.
struct Ruled {
  Ruled(const BatchNormCase& batch_norm, LayerMethod method, double sigma,
        const NumberFormat& format = kFp16, int threads = 2)
      : c(batch_norm), bench(threads), b(bench, c, format, kScale) {
    scaling::LayerRule& rule = scaler.rule;
    rule.method = method, rule.fixed_scale = 24;
    rule.u_min = format.smallest_subnormal(), rule.u_max = format.largest();
    rule.scale_upper_bound = rule.accum_upper_bound = 1e9;
    b.spec.scaler = &scaler;
    b.spec.dy.all_moments = false;  // the op that made dy is asked for none
    SetDy(Normal(static_cast<std::size_t>(c.x.numel()), sigma, 21));
  }
  void SetDy(const Values& values) {
    dy = values;
    Bench::Set(b.spec.dy.tensor, dy);
    dy = Bench::Get(b.spec.dy.tensor);
  }
  void Step() {
    if (!op) op = bench->Make(b.spec);
    Bench::Set(b.spec.dy.tensor, dy);
    op->Forward(MakePass(c.rows));
    op->Backward(MakePass(c.rows));
  }
  // dy as the op left it, and dx, of the pass's rows.
  Values Masked() const { return Rows(b.spec.dy.tensor); }
  Values Rows(const Tensor& t) const {
    Values values = Bench::Get(t);
    values.resize(static_cast<std::size_t>(c.rows * c.x.per_image()));
    return values;
  }
  // dx in fp32 before alpha: of the same op without a rule.
  Values Before() {
    BatchNormSpec plain = b.spec;
    plain.scaler = nullptr;
    plain.dy = bench.MakeGradient(c.x, plain.dy.tensor.format, dy, kScale);
    plain.dx = bench.MakeGradient(c.x, kFp32);
    const std::unique_ptr<Op> other = bench->Make(plain);
    other->Forward(MakePass(c.rows));
    other->Backward(MakePass(c.rows));
    return Rows(plain.dx.tensor);
  }
  Values Factors() const {
    NaiveBatchNorm naive(b.spec, c.rows, true);
    Values factors = Bench::Get(b.spec.gamma);
    for (std::size_t k = 0; k < factors.size(); ++k)
      factors[k] =
          static_cast<float>(static_cast<double>(factors[k]) /
                             std::sqrt(naive.truth()[k].var + static_cast<double>(b.spec.eps)));
    return factors;
  }

  BatchNormCase c;
  Bench bench;
  BatchNormBench b;
  scaling::LayerScaler scaler;
  std::unique_ptr<Op> op;
  Values dy;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("batch norm's alpha: the unbound scale is that of dy after its mask and the factors") {
    for (const BatchNormCase& c : BatchNormCases())
      for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kLognormal,
                                       LayerMethod::kAbsRange, LayerMethod::kElementWiseRange})
        for (const double sigma : {1e-6, 1e-3, 3000.0}) {
          CAPTURE(c.name);
          CAPTURE(static_cast<int>(method));
          CAPTURE(sigma);
          Ruled r(c, method, sigma);
          r.Step();
          const scaling::ScaleDecision& d = r.scaler.decision;
          const double u = ExpectedUnbound(r.scaler.rule, r.Masked(), r.Factors(), c.x.c);
          CHECK(d.unbound == doctest::Approx(u).epsilon(1e-5));
          CHECK(static_cast<double>(d.alpha) == std::exp2(std::floor(std::log2(d.unbound))));
          CHECK(d.scale_in == kScale);
          CHECK(*r.b.spec.dx.scale == kScale * d.alpha);
        }
  }

  TEST_CASE("batch norm's alpha: the mask counts, by half of the values") {
    Ruled masked(BatchNormCases()[6], LayerMethod::kApproxRange, 1e-6);
    BatchNormCase plain = BatchNormCases()[6];
    plain.relu = false;
    Ruled all(plain, LayerMethod::kApproxRange, 1e-6);
    masked.Step(), all.Step();
    CHECK(masked.scaler.decision.unbound > 1.2 * all.scaler.decision.unbound);
  }

  TEST_CASE("batch norm's alpha: multiplies in fp32 before the one rounding; dgamma stays") {
    for (const BatchNormCase& c : BatchNormCases())
      for (const LayerMethod method : scaling::kAdaptiveMethods)
        for (const NumberFormat& format : {kFp16, kFp8E5M2, kBf16}) {
          CAPTURE(c.name);
          CAPTURE(static_cast<int>(method));
          Ruled r(c, method, 1e-5, format);
          r.Step(), r.Step();
          const float alpha = r.scaler.decision.alpha;
          if (method == LayerMethod::kFixed) CHECK(alpha == 16);
          const Values before = r.Before(), dx = r.Rows(r.b.spec.dx.tensor);
          std::size_t wrong = 0;
          for (std::size_t i = 0; i < dx.size(); ++i)
            wrong += dx[i] != RoundTo(format, before[i] * alpha);
          CHECK(wrong == 0);
          CHECK(*r.b.spec.dx.scale == kScale * alpha);
          NaiveBatchNorm naive(r.b.spec, c.rows, true);
          naive.Dx(r.Masked());
          CheckTensor(r.b.spec.dgamma, naive.Dgamma(static_cast<double>(kScale)), 0x1p-20);
          CheckTensor(r.b.spec.dbeta, naive.Dbeta(static_cast<double>(kScale)), 0x1p-20);
        }
  }

  TEST_CASE("batch norm's alpha: less underflows than without it") {
    for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kExactRange}) {
      Ruled r(BatchNormCases()[5], method, 2e-7),
          none(BatchNormCases()[5], LayerMethod::kPass, 2e-7);
      r.Step(), r.Step(), none.Step();
      CHECK(none.scaler.decision.alpha == 1);
      CHECK(r.scaler.decision.alpha > 1);
      CHECK(r.b.spec.dx.stats->underflow < none.b.spec.dx.stats->underflow / 10);
    }
  }

  TEST_CASE("batch norm's alpha: exact_range keeps the histogram of dx before alpha") {
    for (const int threads : {1, 2, 3}) {
      Ruled r(BatchNormCases()[5], LayerMethod::kExactRange, 1e-6, kFp16, threads);
      for (int step = 0; step < 2; ++step) {
        r.Step();
        const scaling::ExponentTail& tail = r.scaler.state.tail;
        CheckTail(tail, TailOf(r.Before()));
        CHECK(tail.scale_in == kScale);
        CHECK(tail.nonzero > 20000);
      }
      CHECK(r.scaler.decision.alpha > 1);
    }
  }

  TEST_CASE("batch norm's alpha: 1 where dy is not finite, of whatever is masked away none") {
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      Ruled r(BatchNormCases()[5], LayerMethod::kApproxRange, 1e-6);
      r.Step();
      const Values out = Bench::Get(r.b.spec.out);
      const scaling::ScaleDecision good = r.scaler.decision;
      std::size_t open = 0, closed = 0;
      while (!(out[open] > 0)) ++open;
      while (out[closed] > 0) ++closed;
      Values dy = r.dy;
      dy[closed] = bad;
      r.SetDy(dy);
      r.Step();
      CHECK(r.scaler.decision.alpha == good.alpha);
      dy[open] = bad;
      r.SetDy(dy);
      r.Step();
      CHECK(r.scaler.decision.limit == scaling::Limit::kNonfinite);
      CHECK(r.scaler.decision.alpha == 1);
    }
  }

  TEST_CASE("batch norm's alpha: looked at anew every update_interval passes") {
    Ruled r(BatchNormCases()[4], LayerMethod::kApproxRange, 1e-6);
    r.scaler.rule.update_interval = 2;
    r.Step();
    const float first = r.scaler.decision.alpha;
    Values larger = r.dy;
    for (float& v : larger) v *= 64;
    r.SetDy(larger);
    r.Step();
    CHECK(r.scaler.decision.limit == scaling::Limit::kStale);
    CHECK(r.scaler.decision.alpha == first);
    r.Step();
    CHECK(r.scaler.decision.alpha < first);
  }
}

}  // namespace ada::backend::test
