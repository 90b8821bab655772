// Histograms by binary exponent, value by value.
#pragma once
#include <doctest/doctest.h>

#include "backend/values.h"
#include "number/stats.h"

namespace ada::backend::test {

// floor(log2(|x| / scale)) without division or logarithm: both sides are exact in double.
inline int ExponentOf(float x, double scale) {
  const double magnitude = std::fabs(static_cast<double>(x));
  int e = std::ilogb(magnitude) - std::ilogb(scale) + 1;
  while (std::ldexp(scale, e) > magnitude) --e;
  return e;
}
// Counts values that carry `scale`.
inline ExponentBins CountBins(const Values& values, double scale) {
  ExponentBins bins;
  for (const float v : values) {
    if (std::isnan(v))
      ++bins.nan;
    else if (std::isinf(v))
      ++bins.inf;
    else if (v == 0)
      ++bins.zeros;
    else
      ++bins[ExponentOf(v, scale)];
  }
  return bins;
}

inline void CheckBins(const char* what, const ExponentBins& got, const ExponentBins& want) {
  CAPTURE(what);
  CHECK(got.zeros == want.zeros);
  CHECK(got.inf == want.inf);
  CHECK(got.nan == want.nan);
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e)
    if (got[e] != want[e])
      CHECK_MESSAGE(got[e] == want[e],
                    "exponent " << e << ": " << got[e] << ", wanted " << want[e]);
}

// Half of them ordinary, the rest zeros, fp32's subnormals, its whole range, infinities, NaNs.
inline Values WildValues(std::size_t n, double sigma, std::uint64_t seed, bool finite = false) {
  Values values = Normal(n, sigma, seed);
  const Values bits = RandomBits(n, seed);
  for (std::size_t i = 0; i < n; ++i) {
    const std::uint32_t word = std::bit_cast<std::uint32_t>(bits[i]);
    if (i % 16 < 3) values[i] = i % 2 != 0 ? 0.0f : -0.0f;
    if (i % 16 == 5) values[i] = std::bit_cast<float>(word & 0x807fffffu);
    if (i % 16 == 7) values[i] = std::bit_cast<float>((word >> (word % 31)) & 0x7fffffu);
    if (i % 16 == 9 && (!finite || std::isfinite(bits[i]))) values[i] = bits[i];
    if (i % 512 == 11 && !finite) values[i] = i % 1024 == 11 ? -INFINITY : NAN;
  }
  return values;
}

}  // namespace ada::backend::test
