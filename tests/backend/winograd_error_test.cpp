// Convolutions by Winograd's algorithm and direct sums in fp32: how far both are from sums in
// double, and that zeros stay zeros.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "backend/matmul_cases.h"
#include "skip.h"

namespace ada::backend::test {
namespace {

MatmulCase Square(std::int64_t size, std::int64_t channels) {
  MatmulCase c;
  c.x = {4, size, size, channels}, c.out = channels;
  c.kernel = {3, 3}, c.padding = {1, 1};
  return c;
}

// Errors relative to the sum of the magnitudes of a result's products, in units of 2^-24.
struct Errors {
  double rms = 0, largest = 0;
};
Errors ErrorsOf(const Tensor& t, const Sums& want) {
  const Values got = Bench::Get(t);
  Errors errors;
  for (std::size_t i = 0; i < want.size(); ++i) {
    const double error =
        std::fabs(static_cast<double>(got[i]) - want[i].value) / want[i].magnitude * 0x1p24;
    errors.rms += error * error;
    errors.largest = std::max(errors.largest, error);
  }
  errors.rms = std::sqrt(errors.rms / static_cast<double>(want.size()));
  return errors;
}

struct StepErrors {
  Errors y, dx, dw;
};
StepErrors ErrorsOfStep(const MatmulCase& c) {
  Bench bench;
  MatmulBench p(bench, c, {kFp16, kFp16, kFp32, kFp16, kFp32}, 1, 1);
  p.Step(*p.MakeOp(bench), MakePass(static_cast<int>(c.x.n)));
  Values w = Bench::Get(p.spec.w);
  for (float& v : w) v = RoundTo(kFp16, v);
  const NaiveMatmul want =
      ComputeNaively(c, c.x.n, Bench::Get(p.spec.x), w, {}, Bench::Get(p.spec.dy.tensor));
  return {ErrorsOf(p.spec.y, want.y), ErrorsOf(p.spec.dx.tensor, want.dx),
          ErrorsOf(p.spec.dw, ShareMagnitudes(c, want.dw))};
}

// Fewer additions make up for larger terms: an error of 2^-21 of the magnitudes is what direct sums
// are held to as well (matmul_kernels_test.cpp).
void CheckErrors(const char* what, const Errors& fast, const Errors& direct) {
  CAPTURE(what);
  CHECK(fast.largest < 8);
  CHECK(fast.rms < 1);
  CHECK(fast.rms < 3 * direct.rms);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("winograd: errors are those of direct sums, at most three times") {
    if (!MayUseWinograd(Square(4, 16))) ADA_SKIP("this processor has a matrix unit");
    for (const std::int64_t channels : {16, 32, 64, 128})
      for (const std::int64_t size : {2, 3, 4, 5, 8, 16}) {
        const MatmulCase c = Square(size, channels);
        if (Products(c, c.x.n) > 3e7) continue;
        CAPTURE(Text(c));
        const StepErrors fast = ErrorsOfStep(c);
        const DirectMatmuls setting;
        const StepErrors direct = ErrorsOfStep(c);
        CheckErrors("y", fast.y, direct.y);
        CheckErrors("dx", fast.dx, direct.dx);
        CheckErrors("dw", fast.dw, direct.dw);
      }
  }

  // Else a gradient that is zero would be counted as one that underflows.
  TEST_CASE("winograd: outputs that read nothing but zeros are zero") {
    const MatmulCase c = Square(9, 20);
    Bench bench;
    MatmulBench p(bench, c, kFp32, 1, 1);
    const auto only = [&](Tensor& t, std::int64_t y, std::int64_t x) {
      Values values = Bench::Get(t);
      for (std::size_t i = 0; i < values.size(); ++i) {
        const auto pixel = static_cast<std::int64_t>(i) / t.shape.c;
        if (pixel % (9 * 9) != y * 9 + x) values[i] = 0;
      }
      Bench::Set(t, values);
    };
    for (std::int64_t at = 0; at < 9 * 9; at += 7) {
      CAPTURE(at);
      const std::int64_t y = at / 9, x = at % 9;
      Bench::Set(p.spec.x, Normal(static_cast<std::size_t>(c.x.numel()), 1, 1));
      Bench::Set(p.spec.dy.tensor, Normal(static_cast<std::size_t>(c.y().numel()), 1, 2));
      only(p.spec.x, y, x), only(p.spec.dy.tensor, y, x);
      p.Step(*p.MakeOp(bench), MakePass(4));
      const std::int64_t reached =
          (std::min<std::int64_t>(y + 1, 8) - std::max<std::int64_t>(y - 1, 0) + 1) *
          (std::min<std::int64_t>(x + 1, 8) - std::max<std::int64_t>(x - 1, 0) + 1);
      const std::int64_t zeros = 4 * (9 * 9 - reached) * 20;
      CHECK(p.spec.y_stats->zeros_before == zeros);
      CHECK(p.spec.dx.stats->zeros_before == zeros);
    }
  }
}

}  // namespace ada::backend::test
