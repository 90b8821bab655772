// What conv ops count, on products whose fp32 values are exact whatever the order of sums: a 1x1
// convolution with weights that are powers of two, one input channel, two output channels.
#include <doctest/doctest.h>

#include "backend/moments.h"
#include "backend/naive_count.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

// dx = round(alpha * (w0 * a + w1 * b)) for pairs (a, b) of dy.
struct Counting {
  Counting(const NumberFormat& format, const Values& weights, const Values& dy) {
    product.x = {static_cast<std::int64_t>(dy.size() / 2), 1, 1, 1};
    product.out = 2;
    p = std::make_unique<MatmulBench>(bench, product, format, 4.0f, 1.0);
    Bench::Set(p->spec.w, weights);
    Bench::Set(p->spec.dy.tensor, dy);
  }
  void Run() { p->Step(*p->MakeOp(bench), MakePass(static_cast<int>(product.x.n))); }
  Values BeforeRounding(float alpha) const {
    const Values dy = Bench::Get(p->spec.dy.tensor), w = Bench::Get(p->spec.w);
    Values before;
    for (std::size_t i = 0; i < dy.size(); i += 2)
      before.push_back((w[0] * dy[i] + w[1] * dy[i + 1]) * alpha);
    return before;
  }
  Bench bench;
  MatmulCase product;
  std::unique_ptr<MatmulBench> p;
};

// A sum of products that are zero may begin at +0 or not: zeros are equal here.
void CheckValues(const Tensor& t, Values want) {
  Values got = Bench::Get(t);
  for (float& v : got) v += 0.0f;
  for (float& v : want) v += 0.0f;
  CHECK(FirstDifference(got, want) == -1);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("counting: underflow is up to 2^-25, overflow from 65520 on") {
    struct Case {
      float alpha, a, b;  // before rounding: alpha * (a / 2 + b / 1024)
      float dx;
      int underflow, overflow, subnormal, below_min;
    };
    const float tiny = 0x1p-24f, inf = std::numeric_limits<float>::infinity();
    const Case cases[] = {
        {1, tiny, 0, 0, 1, 0, 0, 1},                     // 2^-25, the tie
        {1, tiny, tiny, tiny, 0, 0, 1, 1},               // just above
        {1, tiny, -tiny, 0, 1, 0, 0, 1},                 // just below
        {0.5f, tiny, 0, 0, 1, 0, 0, 1},                  // 2^-26: alpha acts before rounding
        {2, tiny, 0, tiny, 0, 0, 1, 0},                  // 2^-24 itself
        {2, tiny, -tiny, tiny, 0, 0, 1, 1},              // below 2^-24, rounds to it
        {1, -3 * tiny, 0, -2 * tiny, 0, 0, 1, 0},        // 1.5 spacings, tie to even
        {1, 0x1p-13f, 0, 0x1p-14f, 0, 0, 0, 0},          // the smallest normal
        {1, 0x1p-13f, -tiny, 0x1p-14f, 0, 0, 0, 0},      // below it, but rounds to it
        {1, 0x1.ff8p-14f, 0, 0x1.ff8p-15f, 0, 0, 1, 0},  // a subnormal
        {1, 0x1.ffcp-14f, 0, 0x1p-14f, 0, 0, 0, 0},      // a tie above it: up, to a normal
        {2, 65504, 8192, inf, 0, 1, 0, 0},               // 65520, the tie
        {2, 65504, 8188, 65504, 0, 0, 0, 0},             // 65519.99
        {2, -65504, -8192, -inf, 0, 1, 0, 0},
        {4, 32768, 0, inf, 0, 1, 0, 0},  // 65536 by alpha alone
        {2, 0, 0, 0, 0, 0, 0, 1},        // an exact zero is below_min only
    };
    for (const Case& c : cases) {
      CAPTURE(c.alpha);
      CAPTURE(c.a);
      CAPTURE(c.b);
      Counting counting(kFp16, {0.5f, 0x1p-10f}, {c.a, c.b});
      counting.p->scaler.rule.fixed_scale = static_cast<double>(c.alpha);
      counting.Run();
      const Gradient& dx = counting.p->spec.dx;
      CHECK(Bench::Get(dx.tensor)[0] == c.dx);
      CHECK(dx.stats->underflow == c.underflow);
      CHECK(dx.stats->overflow == c.overflow);
      CHECK(dx.stats->subnormal == c.subnormal);
      CHECK(dx.stats->below_min == c.below_min);
      CHECK(dx.stats->inf + dx.stats->nan == 0);
      CHECK(*dx.scale == 4 * c.alpha);
    }
  }

  TEST_CASE("counting: every field under an approx_range scale") {
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      const double sigma = 24 * kind.format.smallest_subnormal();
      Values dy = Normal(40000, kind.format == kFp32 ? 1e-3 : sigma, 7);
      for (std::size_t i = 0; i < dy.size(); i += 50) dy[i] = dy[i + 1] = 0;
      Counting counting(kind.format, {0.25f, 0.125f}, dy);
      MatmulBench& p = *counting.p;
      p.scaler.rule.method = scaling::LayerMethod::kApproxRange;
      p.scaler.rule.u_min = kind.format.smallest_subnormal();
      p.scaler.rule.u_max = kind.format.largest();
      p.scaler.rule.fan = 2;
      *p.spec.dy.moments = MomentsOf(Bench::Get(p.spec.dy.tensor));
      counting.Run();
      // src/scaling/README.md: u_min / (t * sqrt(E dy^2 * E w^2) * sqrt(fan / 2)); here sqrt(E w^2)
      // = 0.1976, so in fp16 and bf16 about 1 / (1.25e-3 * 24 * 0.1976) = 168, bounded to 16.
      const double alpha = kind.format == kFp32 ? 1 : 16;
      CHECK(static_cast<double>(p.scaler.decision.alpha) == alpha);
      CHECK(static_cast<double>(*p.spec.dx.scale) == 4 * alpha);
      const Values before = counting.BeforeRounding(p.scaler.decision.alpha);
      CheckValues(p.spec.dx.tensor, RoundAll(kind.format, before));
      CheckStats(*p.spec.dx.stats, kind.format, before);
      CheckMoments(*p.spec.dx.moments, Bench::Get(p.spec.dx.tensor));
    }
  }

  TEST_CASE("counting: infinite and NaN gradients stay what they are, alpha is 1") {
    const float inf = std::numeric_limits<float>::infinity(), nan = std::nanf("");
    Counting counting(kFp16, {0.5f, 0.25f}, {1, 2, inf, 0, nan, 1, -inf, 0, 3, 4});
    counting.p->scaler.rule.method = scaling::LayerMethod::kApproxRange;
    counting.p->spec.dy.moments->mean_square = nan;
    counting.Run();
    CHECK(counting.p->scaler.decision.limit == scaling::Limit::kNonfinite);
    const Values before = counting.BeforeRounding(1);
    CheckValues(counting.p->spec.dx.tensor, before);
    CheckStats(*counting.p->spec.dx.stats, kFp16, before);
    CHECK(counting.p->spec.dw_stats->nan == 1);  // of the weight that met inf - inf
  }

  TEST_CASE("counting: outputs, weights and weight gradients") {
    for (const Kind& kind : MainKinds()) {
      CAPTURE(kind.name);
      Counting counting(kind.format, Spread(kind.format, 2, 3), Normal(2000, 1, 8));
      MatmulBench& p = *counting.p;
      Bench::Set(p.spec.x, Spread(kind.format, 1000, 9));
      const Values masters = Bench::Get(p.spec.w), w = RoundAll(kind.format, masters),
                   x = Bench::Get(p.spec.x);
      counting.Run();
      Values before;
      for (const float v : x) before.insert(before.end(), {w[0] * v, w[1] * v});
      CheckValues(p.spec.y, RoundAll(kind.format, before));
      CheckStats(*p.spec.y_stats, kind.format, before);
      CheckStats(*p.spec.w_stats, kind.format, masters);
      CheckStats(*p.spec.dw_stats, kFp32, Bench::Get(p.spec.dw));
    }
  }

  TEST_CASE("counting: a step that is not logged has numel and max_abs only") {
    Counting counting(kFp16, {0.5f, 0.25f}, Normal(2000, 1e-6, 10));
    Pass pass = MakePass(1000);
    pass.count = false;
    counting.p->Step(*counting.p->MakeOp(counting.bench), pass);
    const TensorStats& stats = *counting.p->spec.dx.stats;
    const Values before = counting.BeforeRounding(1);
    float largest = 0;
    for (const float v : before) largest = std::max(largest, std::fabs(v));
    CHECK(!stats.full);
    CHECK(stats.numel == 1000);
    CHECK(stats.max_abs == largest);
    CHECK(stats.underflow + stats.subnormal + stats.zeros_before == 0);
    CheckMoments(*counting.p->spec.dx.moments, RoundAll(kFp16, before));
  }
}

}  // namespace ada::backend::test
