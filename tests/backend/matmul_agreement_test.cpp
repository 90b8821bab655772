// Kernels against the fp32 path: on sums that are exact in any order they agree bit for bit,
// whatever is asked for at the rounding points.
#include <doctest/doctest.h>

#include <algorithm>

#include "backend/matmul_exact.h"
#include "backend/moments.h"
#include "backend/styles.h"
#include "backend/written.h"

namespace ada::backend::test {
namespace {

using scaling::LayerMethod;

// What a layer is asked for besides its matmuls.
struct Wish {
  std::string name;
  LayerMethod method = LayerMethod::kFixed;
  bool stochastic = false, reference = false;
  float per_tensor_scale = 0;  // of y and dx
  NumberFormat dw_format = kFp32;
  bool quiet = false;  // nothing is counted
};
std::vector<Wish> StatsRequest() {
  return {{"fixed"},
          {"approx_range", LayerMethod::kApproxRange},
          {"exact_range", LayerMethod::kExactRange},
          {"element_wise_range", LayerMethod::kElementWiseRange},
          {"reference", LayerMethod::kFixed, false, true},
          {"stochastic", LayerMethod::kFixed, true, false, 0, kBf16},
          {"own scales", LayerMethod::kPass, false, false, 16, kFp8E5M2},
          {"stochastic, own scales", LayerMethod::kPass, true, false, 0.5f},
          {"quiet", LayerMethod::kFixed, false, false, 0, kFp32, true},
          {"quiet exact_range", LayerMethod::kExactRange, false, false, 0, kFp32, true},
          {"quiet reference", LayerMethod::kFixed, false, true, 0, kFp32, true}};
}

// Two steps of a layer (exact_range decides by the first), the second with `accumulate`.
Written Run(Bench& bench, const MatmulCase& c, const MatmulFormats& f, const ExactInputs& in,
            const Wish& wish, int rows) {
  ExactBench p(bench, c, f, in, 4, 8);
  MatmulSpec& s = p.spec;
  scaling::LayerRule& rule = p.scaler.rule;
  rule.method = wish.method, rule.reference = wish.reference;
  rule.u_min = f.dx.smallest_subnormal(), rule.u_max = f.dx.largest(), rule.fan = 9;
  *s.dy.moments = MomentsOf(Bench::Get(s.dy.tensor));
  Style y(wish.stochastic, 1, wish.per_tensor_scale), dx(wish.stochastic, 2, wish.per_tensor_scale),
      dw(wish.stochastic, 3);
  s.y = MakeFor(bench, c.y(), f.y, y), s.y_style = y.style;
  s.dx = GradientFor(bench, c.x, f.dx, dx);
  s.dw_style = dw.style, s.dw_format = wish.dw_format, s.reference = wish.reference;
  ExponentBins bins[3];
  if (wish.quiet) s.dx.moments = nullptr;
  s.y_style.bins = &bins[0], s.dx.style.bins = &bins[1], s.dw_style.bins = &bins[2];
  const std::int64_t blocks = (c.x.n - 1) / bench->BlockImages(c.y()) + 1;
  Tensor mean = bench.Make({blocks, 1, 1, c.out}, kFp32), m2 = bench.Make(mean.shape, kFp32);
  s.y_moments = {mean.f32(), m2.f32()};
  const auto op = p.MakeOp(bench);
  Written written;
  for (const bool second : {false, true}) {
    Pass pass = Drawing(rows);
    pass.accumulate = second, pass.edge = 0.25;
    pass.count = pass.bins = !wish.quiet;
    p.Step(*op, pass);
    for (const Tensor& t : {s.y, s.dx.tensor, s.dw}) written.Add(Bench::Get(t));
    if (c.bias) written.Add(Bench::Get(s.db));
    for (const TensorStats* stats : {s.y_stats, s.w_stats, s.dw_stats, s.dx.stats})
      written.Add(*stats);
    if (!wish.quiet) written.Add(*s.dx.moments, s.dx.stats->nan == 0 && s.dx.stats->overflow == 0);
    for (const ExponentBins& b : bins) written.Add(b);
    for (const Tensor& t : {mean, m2}) written.Add(Bench::Get(t));
    written.Add(static_cast<double>(*s.dx.scale));
    written.Add(static_cast<double>(p.scaler.decision.alpha));
    const scaling::ExponentTail& tail = p.scaler.state.tail;
    for (const std::int64_t n : tail.bins) written.Add(static_cast<double>(n));
    written.Add(static_cast<double>(tail.nonzero)), written.Add(tail.largest);
  }
  return written;
}

void CheckAgreement(const MatmulCase& c, const FormatSet& f, const Wish& wish, Exact32 kind,
                    int rows, std::uint64_t seed) {
  CAPTURE(Text(c));
  CAPTURE(f.name);
  CAPTURE(wish.name);
  CAPTURE(Name(kind));
  CAPTURE(rows);
  CAPTURE(seed);
  const ExactInputs in(c, f.formats, kind, rows, seed);
  Bench other = FloatBench(2);
  const Written want = Run(other, c, f.formats, in, wish, rows);
  for (const int threads : {1, 3}) {
    CAPTURE(threads);
    Bench bench(threads);
    const Written got = Run(bench, c, f.formats, in, wish, rows);
    REQUIRE(got.numbers.size() == want.numbers.size());
    const auto at = std::mismatch(got.numbers.begin(), got.numbers.end(), want.numbers.begin());
    const bool same = at.first == got.numbers.end();
    CHECK_MESSAGE(same, "number " << at.first - got.numbers.begin() << ": "
                                  << (same ? 0 : *at.first) << ", the fp32 path says "
                                  << (same ? 0 : *at.second));
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("tile agreement: exact sums give the fp32 path's bits, whatever is asked for") {
    std::uint64_t seed = 0;
    for (const MatmulCase& c : KernelMatmuls())
      for (const Exact32 kind : {Exact32::kUniform, Exact32::kSparse})
        for (const std::size_t format : {0u, 1u, 2u}) {
          const std::vector<Wish> wishes = StatsRequest();
          CheckAgreement(c, KernelFormats()[format], wishes[seed % wishes.size()], kind,
                         static_cast<int>(c.x.n), seed);
          ++seed;
        }
  }

  TEST_CASE("tile agreement: random shapes, formats, rows and wishes") {
    RandomStream random(8, StreamId("agreement"));
    const std::vector<Wish> wishes = StatsRequest();
    const auto below = [&](std::size_t n) { return random.Below(static_cast<std::uint32_t>(n)); };
    std::uint64_t seed = 100;
    for (const MatmulCase& c : RandomMatmuls(80, 3e5, 9)) {
      const auto format = below(KernelFormats().size()), wish = below(wishes.size());
      const int rows = 1 + static_cast<int>(below(static_cast<std::size_t>(c.x.n)));
      CheckAgreement(c, KernelFormats()[format], wishes[wish],
                     below(2) ? Exact32::kUniform : Exact32::kSparse, rows, ++seed);
    }
  }
}

}  // namespace ada::backend::test
