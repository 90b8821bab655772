// Sparse operands of convolutions by Winograd's algorithm. A sum whose products are all zero has to
// be zero, or it would be counted as an underflow; errors have to keep to their bounds.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "backend/matmul_cases.h"
#include "skip.h"

namespace ada::backend::test {
namespace {

// A convolution that the algorithm takes, with operands of random density.
struct SparseCase {
  MatmulCase product;
  double x, w, dy;  // densities
};
std::vector<SparseCase> SparseCases(int count, std::uint64_t seed) {
  RandomStream random(seed, StreamId("sparse products"));
  const auto below = [&](std::uint32_t n) { return static_cast<int>(random.Below(n)); };
  const auto density = [&] {
    constexpr double kDensities[] = {1, 1, 0.5, 0.1, 0.02, 0.003};
    return kDensities[below(6)];
  };
  std::vector<SparseCase> all;
  while (static_cast<int>(all.size()) < count) {
    SparseCase c;
    c.product.name = "sparse";
    c.product.x = {1 + below(12), 1 + below(9), 1 + below(20), 16 + below(34)};
    c.product.out = 16 + below(34);
    c.product.kernel = {3, 3}, c.product.padding = {below(3), below(3)};
    c.x = density(), c.w = below(2) == 0 ? 1 : density(), c.dy = density();
    const Shape y = c.product.y();
    if (std::min({c.product.x.h, c.product.x.w, y.h, y.w}) < 2) continue;
    if (Products(c.product, c.product.x.n) <= 4e6) all.push_back(c);
  }
  return all;
}
Values Sparse(const Values& dense, double density, std::uint64_t seed) {
  RandomStream random(seed, StreamId("zeros"));
  Values values = dense;
  for (float& v : values)
    if (static_cast<double>(random.Uniform()) >= density) v = 0;
  return values;
}

// One step, and what it read.
struct Step {
  Values x, w, dy, y, dx, dw;
  std::int64_t y_zeros, dx_zeros, dw_zeros;
};
Step StepOf(const SparseCase& c, const NumberFormat& format, std::uint64_t seed) {
  Bench bench;
  MatmulBench p(bench, c.product, {format, format, kFp32, format, kFp32}, 1, 1);
  Values w = Sparse(Bench::Get(p.spec.w), c.w, seed + 1);
  for (float& v : w) v = RoundTo(format, v);
  Bench::Set(p.spec.x, Sparse(Bench::Get(p.spec.x), c.x, seed));
  Bench::Set(p.spec.w, w);
  Bench::Set(p.spec.dy.tensor, Sparse(Bench::Get(p.spec.dy.tensor), c.dy, seed + 2));
  p.Step(*p.MakeOp(bench), MakePass(static_cast<int>(c.product.x.n)));
  const auto get = [](const Tensor& t) { return Bench::Get(t); };
  return {get(p.spec.x),
          w,
          get(p.spec.dy.tensor),
          get(p.spec.y),
          get(p.spec.dx.tensor),
          get(p.spec.dw),
          p.spec.y_stats->zeros_before,
          p.spec.dx.stats->zeros_before,
          p.spec.dw_stats->zeros_before};
}
std::int64_t DifferentZeros(const Values& a, const Values& b) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += (a[i] == 0) != (b[i] == 0);
  return different;
}

// The largest error, in units of 2^-24 of `magnitudes`.
double LargestError(const Values& got, const Sums& want, const Sums& magnitudes) {
  double largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double error = std::fabs(static_cast<double>(got[i]) - want[i].value);
    if (error > 0) largest = std::max(largest, error / magnitudes[i].magnitude * 0x1p24);
  }
  return largest;
}
// Each weight as large as the largest of its nine.
Values LargestOfKernels(Values w) {
  for (auto kernel = w.begin(); kernel != w.end(); kernel += 9) {
    float largest = 0;
    for (auto v = kernel; v != kernel + 9; ++v) largest = std::max(largest, std::fabs(*v));
    std::fill(kernel, kernel + 9, largest);
  }
  return w;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("winograd: sums whose products are all zero are zero") {
    const std::vector<SparseCase> cases = SparseCases(20, 1);
    if (!MayUseWinograd(cases.front().product)) ADA_SKIP("this processor has a matrix unit");
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const SparseCase& c = cases[i];
      CAPTURE(Text(c.product));
      CAPTURE(c.x);
      CAPTURE(c.w);
      CAPTURE(c.dy);
      for (const NumberFormat& format : {kFp32, kFp16}) {
        const Step fast = StepOf(c, format, 10 * i);
        const DirectMatmuls setting;
        const Step direct = StepOf(c, format, 10 * i);
        CHECK(DifferentZeros(fast.y, direct.y) == 0);
        CHECK(DifferentZeros(fast.dx, direct.dx) == 0);
        CHECK(DifferentZeros(fast.dw, direct.dw) == 0);
        CHECK(fast.y_zeros == direct.y_zeros);
        CHECK(fast.dx_zeros == direct.dx_zeros);
        CHECK(fast.dw_zeros == direct.dw_zeros);
      }
    }
  }

  // What src/backend/README.md says of sparse operands.
  TEST_CASE("winograd: errors of sparse operands keep to the largest weight of a kernel") {
    const std::vector<SparseCase> cases = SparseCases(20, 2);
    if (!MayUseWinograd(cases.front().product)) ADA_SKIP("this processor has a matrix unit");
    for (const SparseCase& c : cases) {
      CAPTURE(Text(c.product));
      const Step step = StepOf(c, kFp16, 1);
      const auto naive = [&](const Values& w) {
        return ComputeNaively(c.product, c.product.x.n, step.x, w, {}, step.dy);
      };
      const NaiveMatmul want = naive(step.w), most = naive(LargestOfKernels(step.w));
      CHECK(LargestError(step.y, want.y, most.y) < 8);
      CHECK(LargestError(step.dx, want.dx, most.dx) < 8);
      CHECK(LargestError(step.dw, want.dw, ShareMagnitudes(c.product, want.dw)) < 8);
    }
  }
}

}  // namespace ada::backend::test
