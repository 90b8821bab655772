// Histograms in the kernels of every instruction set: all formats and storages, lengths that are no
// multiple of a vector or a segment, all kinds of values; and that they change nothing else.
#include <doctest/doctest.h>

#include "backend/isa_record.h"
#include "backend/naive_bins.h"

namespace ada::backend::test {
namespace {

using cpu::BlockBins;

// As ExponentBins of values that carry the divisor.
ExponentBins Widened(const BlockBins& block) {
  ExponentBins bins;
  for (int k = 0; k < BlockBins::kExponents; ++k) bins[BlockBins::kLowest + k] = block.counts[k];
  bins.zeros = block.zeros, bins.inf = block.inf, bins.nan = block.nan;
  return bins;
}
const float kDivisors[] = {1, 1.5f, std::nextafter(1.0f, 2.0f), std::nextafter(2.0f, 1.0f)};

// Each lane's value at each place of the two segments that 5000 values make.
void CheckRound(const Kernels& kernels, const Style& style, const Values& in, float divisor) {
  const std::size_t n = in.size();
  Memory out(style.storage, n), plain(style.storage, n);
  BlockStats stats, plain_stats;
  BlockBins bins;
  bins.counts[3] = bins.zeros = 7;  // of an earlier call
  cpu::Rounding rounding = Rounds(style, &stats, n % 2 == 0);
  rounding.bins = &bins, rounding.bins_mantissa = Split(divisor).mantissa;
  kernels.round(in.data(), 0.5f, out.piece(), Length(n), rounding);
  Values before = in;
  for (float& v : before) v *= 0.5f;
  CheckBins("round", Widened(bins), CountBins(before, static_cast<double>(divisor)));
  CHECK(out.guard_intact());
  kernels.round(in.data(), 0.5f, plain.piece(), Length(n), Rounds(style, &plain_stats, n % 2 == 0));
  CHECK(FirstDifference(out.Get(), plain.Get()) == -1);
  Record with, without;
  with.Add(stats), without.Add(plain_stats);
  CHECK(std::memcmp(with.values.data(), without.values.data(),
                    with.values.size() * sizeof(double)) == 0);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("kernels: histograms of values before rounding, and of values in memory") {
    for (const Kernels* kernels : KernelSets())
      for (const Style& style : AllStyles())
        for (const std::size_t n : {1, 7, 16, 33, 4096, 5000})
          for (const float divisor : kDivisors) {
            CAPTURE(kernels->name);
            CAPTURE(style.name);
            CAPTURE(n);
            CAPTURE(divisor);
            CheckRound(*kernels, style, n % 2 == 0 ? RandomBits(n, n) : WildValues(n, 1e-3, n),
                       divisor);
            Memory in(style.storage, Input(style, n, 3, true));
            BlockStats stats;
            BlockBins bins;
            cpu::Rounding rounding = Rounds(style, &stats);
            rounding.bins = &bins, rounding.bins_mantissa = Split(divisor).mantissa;
            kernels->inspect(in.piece(), Length(n), rounding);
            CheckBins("inspect", Widened(bins), CountBins(in.Get(), static_cast<double>(divisor)));
          }
  }

  TEST_CASE("kernels: histograms at every end of fp32, for divisors around its mantissas") {
    Values ends;
    for (int e = -149; e <= 127; ++e)
      for (const float m : {1.0f, 1.25f, 1.5f, std::nextafter(1.5f, 1.0f), 1.9999999f}) {
        const float v = std::ldexp(m, e);
        ends.insert(ends.end(), {v, -v, std::nextafter(v, 0.0f)});
      }
    for (const Kernels* kernels : KernelSets())
      for (const float divisor : {1.0f, 1.25f, 1.5f, 1.9999999f}) {
        CAPTURE(kernels->name);
        CAPTURE(divisor);
        CheckRound(*kernels, {MainKinds()[0], false, 1}, ends, divisor);
        CheckRound(*kernels, {MainKinds()[1], false, 1}, ends, divisor);
        CheckRound(*kernels, {MainKinds()[0], false, 1024}, ends, divisor);
      }
  }

  // More than the sums of bits hold before they are emptied, and exponents that they have no bit
  // for.
  TEST_CASE("kernels: histograms of many values: all alike, growing, shrinking, a few far below") {
    const std::size_t n = 150001;
    Values alike(n, 1.5f), growing = Normal(n, 1, 1), shrinking = growing, far = growing;
    for (std::size_t i = 0; i < n; ++i) {
      const int e = static_cast<int>(i / 1000) - 75;
      growing[i] = std::ldexp(growing[i], e), shrinking[i] = std::ldexp(shrinking[i], -e);
      if (i % 777 == 0) far[i] = std::ldexp(far[i], -static_cast<int>(i / 777));
    }
    for (const Kernels* kernels : KernelSets())
      for (const Values& in : {alike, growing, shrinking, far})
        for (const float divisor : kDivisors) {
          CAPTURE(kernels->name);
          CAPTURE(divisor);
          CheckRound(*kernels, {MainKinds()[1], false, 1}, in, divisor);
        }
  }

  TEST_CASE("kernels: histograms are taken only where counts are") {
    const Values in = Normal(100, 1, 1);
    for (const Kernels* kernels : KernelSets()) {
      Memory out(Storage::kF16, 100);
      BlockStats stats;
      BlockBins bins;
      bins.zeros = 9;
      cpu::Rounding rounding{kFp16, false, true, &stats};
      rounding.bins = &bins;
      kernels->round(in.data(), 1, out.piece(), 100, rounding);
      CHECK(bins.zeros == 9);
      CHECK(Widened(bins).nonzero() == 0);
    }
  }
}

}  // namespace ada::backend::test
