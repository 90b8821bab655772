// The cast between formats: values and gradients rounded once, alpha of each method without a
// weight, statistics and scales.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/method_formulas.h"
#include "backend/moments.h"
#include "backend/naive_count.h"
#include "backend/op_bench.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;
const Shape kShape = {9, 16, 16, 35};  // blocks of one image, no multiple of a vector
constexpr int kRows = 7;

Values First(Values values) {
  values.resize(static_cast<std::size_t>(kRows * kShape.per_image()));
  return values;
}

// x in `from`, y in `to`; dy in y's format, dx in x's.
struct ScaleBench {
  ScaleBench(const NumberFormat& from, const NumberFormat& to, double sigma) {
    const auto n = static_cast<std::size_t>(kShape.numel());
    spec.x = bench.Make(kShape, from, Normal(n, 1, 1)), spec.y = bench.Make(kShape, to);
    spec.y_stats = bench.Stats();
    spec.dy = bench.MakeGradient(kShape, to, Normal(n, sigma, 2), 8);
    spec.dx = bench.MakeGradient(kShape, from);
    spec.scaler = &scaler;
    scaling::LayerRule& rule = scaler.rule;
    rule.has_weight = false;
    rule.u_min = from.smallest_subnormal(), rule.u_max = from.largest();
    rule.scale_upper_bound = rule.accum_upper_bound = 1e9;
    *spec.dy.moments = MomentsOf(First(Bench::Get(spec.dy.tensor)));
  }
  void Step() {
    const auto op = bench->Make(spec);
    op->Forward(MakePass(kRows));
    op->Backward(MakePass(kRows));
  }
  // Checks that the first rows hold RoundTo(values), counted; the others nothing.
  static void Check(const Tensor& t, const TensorStats& stats, const Values& before) {
    Values want = RoundAll(t.format, before);
    want.resize(static_cast<std::size_t>(kShape.numel()));
    CheckEqual(t, want);
    CheckStats(stats, t.format, before);
  }
  Bench bench;
  ScaleSpec spec;
  scaling::LayerScaler scaler;
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("scale: values change format, gradients are multiplied and rounded once") {
    for (const Kind& from : MainKinds())
      for (const Kind& to : MainKinds()) {
        CAPTURE(from.name);
        CAPTURE(to.name);
        ScaleBench b(from.format, to.format, 1e-6);
        b.scaler.rule.method = LayerMethod::kFixed, b.scaler.rule.fixed_scale = 32;
        b.Step();
        ScaleBench::Check(b.spec.y, *b.spec.y_stats, First(Bench::Get(b.spec.x)));
        Values dy = First(Bench::Get(b.spec.dy.tensor));
        for (float& v : dy) v *= 32;
        ScaleBench::Check(b.spec.dx.tensor, *b.spec.dx.stats, dy);
        CheckMoments(*b.spec.dx.moments, RoundAll(from.format, dy));
        CHECK(*b.spec.dx.scale == 8 * 32);
      }
  }

  TEST_CASE("scale: each method's alpha, from the gradient alone") {
    struct Case {
      LayerMethod method;
      double sigma;
    };
    for (const Case& c : {Case{LayerMethod::kApproxRange, 1e-6},
                          {LayerMethod::kApproxRange, 1e5},
                          {LayerMethod::kLognormal, 1e-6},
                          {LayerMethod::kLognormal, 1e5}}) {
      CAPTURE(static_cast<int>(c.method));
      CAPTURE(c.sigma);
      ScaleBench b(kFp16, kFp32, c.sigma);
      const scaling::LayerRule& r = b.scaler.rule;
      b.scaler.rule.method = c.method;
      b.Step();
      const Values dy = First(Bench::Get(b.spec.dy.tensor));
      double n = 0, sum = 0, square = 0, largest = 0;
      const bool logs = c.method == LayerMethod::kLognormal;
      for (const float v : dy) {
        const auto x = static_cast<double>(v), at = logs ? std::log(std::fabs(x)) : x;
        largest = std::max(largest, std::fabs(x));
        if (logs && x == 0) continue;
        n += 1, sum += at, square += at * at;
      }
      const double mean = sum / n, sd = std::sqrt(square / n - mean * mean);
      const double want =
          logs ? std::exp(std::log(r.u_min) - mean - sd * r.phi_inverse) : r.u_min / (r.t * sd);
      const double u = std::min(std::max(want, 1.0), r.u_max / largest);
      const scaling::ScaleDecision& d = b.scaler.decision;
      CHECK(d.unbound == doctest::Approx(u).epsilon(1e-6));
      CHECK(static_cast<double>(d.alpha) == std::exp2(std::floor(std::log2(d.unbound))));
      CHECK(*b.spec.dx.scale == 8 * d.alpha);
      Values scaled = dy;
      for (float& v : scaled) v *= d.alpha;
      ScaleBench::Check(b.spec.dx.tensor, *b.spec.dx.stats, scaled);
    }
  }

  TEST_CASE("scale: exact_range looks at the exponents of dy") {
    ScaleBench b(kFp16, kFp32, 1e-9);
    b.scaler.rule.method = LayerMethod::kExactRange;
    b.Step();
    CHECK(b.scaler.decision.alpha == 1);
    const scaling::ExponentTail& tail = b.scaler.state.tail;
    const Values dy = First(Bench::Get(b.spec.dy.tensor));
    const std::int64_t nonzero =
        std::count_if(dy.begin(), dy.end(), [](float v) { return v != 0; });
    CheckTail(tail, TailOf(dy));
    CHECK(nonzero > 0);
    b.Step();
    CHECK(b.scaler.decision.limit == scaling::Limit::kTarget);
    std::int64_t lost = 0;
    for (const float v : First(Bench::Get(b.spec.dx.tensor))) lost += v == 0;
    CHECK(static_cast<double>(lost) <= 1e-3 * static_cast<double>(nonzero));
  }

  TEST_CASE("scale: the authors round alpha * dy to dy's format first") {
    const NumberFormat e4m3 = kFp8E4M3;
    ScaleBench b(e4m3, kFp16, 1e-2);
    b.scaler.rule.method = LayerMethod::kFixed, b.scaler.rule.fixed_scale = 1;
    b.scaler.rule.reference = b.scaler.rule.fp16_gradients = true;
    b.scaler.rule.power_of_two = false, b.scaler.rule.fixed_scale = 1.4140625;
    b.Step();
    Values once = First(Bench::Get(b.spec.dy.tensor)), twice;
    for (float& v : once) v *= 1.4140625f, twice.push_back(RoundTo(kFp16, v));
    ScaleBench::Check(b.spec.dx.tensor, *b.spec.dx.stats, twice);
    CHECK(FirstDifference(RoundAll(e4m3, once), RoundAll(e4m3, twice)) >= 0);
  }

  TEST_CASE("scale: without dx it only casts") {
    ScaleBench b(kFp16, kFp32, 1);
    b.spec.dy = b.spec.dx = {}, b.spec.scaler = nullptr;
    b.Step();
    ScaleBench::Check(b.spec.y, *b.spec.y_stats, First(Bench::Get(b.spec.x)));
  }
}

}  // namespace ada::backend::test
