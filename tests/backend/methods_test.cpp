// Each method through whole ops: the unbound scale that src/scaling/README.md gives for dy and the
// rounded w, and the tail that exact_range keeps of the data gradient.
#include <doctest/doctest.h>

#include "backend/method_formulas.h"
#include "backend/naive_count.h"
#include "backend/naive_matmul.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;
const float kInf = std::numeric_limits<float>::infinity();

// A layer with a rule of `method` on random values in `format`.
struct Ruled {
  Ruled(const MatmulCase& c, LayerMethod method, double sigma, int threads = 2)
      : bench(threads), p(bench, c, kFp16, 8, 1) {
    const auto n = static_cast<std::size_t>(c.y().numel());
    Bench::Set(p.spec.dy.tensor, Normal(n, sigma, 21));
    *p.spec.dy.moments = MomentsOf(Bench::Get(p.spec.dy.tensor));
    scaling::LayerRule& rule = p.scaler.rule;
    rule.method = method;
    rule.u_min = kFp16.smallest_subnormal(), rule.u_max = kFp16.largest(), rule.fan = 90;
    rule.scale_upper_bound = rule.accum_upper_bound = 1e9;
  }
  void Step() { p.Step(*p.MakeOp(bench), MakePass(static_cast<int>(p.product.x.n))); }
  Values W() const { return RoundAll(kFp16, Bench::Get(p.spec.w)); }
  Values Dy() const { return Bench::Get(p.spec.dy.tensor); }
  Bench bench;
  MatmulBench p;
};

std::vector<MatmulCase> Layers() {
  const std::array<int, 2> one = {1, 1}, two = {2, 2}, three = {3, 3};
  return {{"3x3", {9, 8, 8, 6}, 10, three, one, one, one, 1, true},
          {"2 groups, stride 2", {9, 8, 8, 16}, 10, three, two, one, one, 2, false},
          LinearCase("linear", {40, 1, 1, 20}, 10, true)};
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("methods: each op's unbound scale is the one of its dy and rounded w") {
    for (const MatmulCase& c : Layers())
      for (const LayerMethod method : {LayerMethod::kApproxRange, LayerMethod::kLognormal,
                                       LayerMethod::kAbsRange, LayerMethod::kElementWiseRange})
        for (const double sigma : {1e-6, 1e-3, 3000.0}) {
          CAPTURE(c.name);
          CAPTURE(static_cast<int>(method));
          CAPTURE(sigma);
          Ruled r(c, method, sigma);
          r.Step();
          const double u = ExpectedUnbound(r.p.scaler.rule, r.Dy(), r.W(), c.out);
          const scaling::ScaleDecision& d = r.p.scaler.decision;
          CHECK(d.unbound == doctest::Approx(u).epsilon(1e-6));
          CHECK(static_cast<double>(d.alpha) == std::exp2(std::floor(std::log2(d.unbound))));
          CHECK(*r.p.spec.dx.scale == 8 * d.alpha);
        }
  }

  TEST_CASE("methods: what is not finite gives alpha 1, under every method") {
    for (const LayerMethod method :
         {LayerMethod::kApproxRange, LayerMethod::kAbsRange, LayerMethod::kElementWiseRange})
      for (const float bad : {kInf, -kInf, std::nanf("")}) {
        Ruled r(Layers()[0], method, 1e-6);
        Values dy = r.Dy();
        dy[77] = bad;
        Bench::Set(r.p.spec.dy.tensor, dy);
        *r.p.spec.dy.moments = MomentsOf(dy);
        r.Step();
        CHECK(r.p.scaler.decision.limit == scaling::Limit::kNonfinite);
        CHECK(r.p.scaler.decision.alpha == 1);
      }
  }

  // Products with powers of two are exact in fp32, whatever the order of sums.
  TEST_CASE("exact_range: the tail is the histogram of dgrad before alpha") {
    MatmulCase c;
    c.x = {30000, 1, 1, 1}, c.out = 2;
    Ruled r(c, LayerMethod::kExactRange, 1);
    Values dy = Spread(kFp16, 60000, 5);
    for (std::size_t i = 0; i < dy.size(); ++i)
      if (i % 2 == 1 || i % 10 == 0 || std::fabs(dy[i]) > 60000) dy[i] = 0;
    Bench::Set(r.p.spec.dy.tensor, dy);
    Bench::Set(r.p.spec.w, {0x1p-10f, 1});
    for (const int step : {0, 1}) {
      CAPTURE(step);
      r.Step();
      Values dgrad;
      const Values stored = r.Dy();
      for (std::size_t i = 0; i < stored.size(); i += 2) dgrad.push_back(stored[i] * 0x1p-10f);
      const scaling::ExponentTail& tail = r.p.scaler.state.tail;
      CheckTail(tail, TailOf(dgrad));
      CHECK(tail.scale_in == 8);
      CHECK(tail.nonzero > 20000);
    }
    CHECK(r.p.scaler.decision.alpha > 1);  // half of all lie below fp16's smallest
    const scaling::ExponentTail before = r.p.scaler.state.tail;
    dy[0] = kInf;
    Bench::Set(r.p.spec.dy.tensor, dy);
    r.Step();
    CheckTail(r.p.scaler.state.tail, before);
  }

  TEST_CASE("exact_range: the same tail with any number of threads") {
    const std::array<int, 2> one = {1, 1}, three = {3, 3};
    const MatmulCase c{"conv", {37, 16, 16, 16}, 16, three, one, one, one, 1, false};
    scaling::ExponentTail first;
    Values dx;
    for (const int threads : {1, 2, 3, 4}) {
      Ruled r(c, LayerMethod::kExactRange, 1e-6, threads);
      r.Step(), r.Step();
      if (threads == 1) first = r.p.scaler.state.tail, dx = Bench::Get(r.p.spec.dx.tensor);
      CheckTail(r.p.scaler.state.tail, first);
      CheckEqual(r.p.spec.dx.tensor, dx);
    }
    CHECK(first.nonzero > 100000);
  }
}

}  // namespace ada::backend::test
