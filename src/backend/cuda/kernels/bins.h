// Counting values by binary exponent (BinRange): inf, NaN and zeros have bins of their own after
// those of the exponents.
#pragma once
#include <cstdint>

#include "backend/stats_rules.h"
#include "number/host_device.h"
#include "number/stats.h"

namespace ada::backend::cuda {

// Indices into an array of kCount counters of one launch.
struct LaunchBins : BinRange {
  static constexpr int kZeros = kExponents, kInf = kExponents + 1, kNan = kExponents + 2;
  static constexpr int kCount = kExponents + 3;
};

// The bin of a value whose magnitude has the bits u.
ADA_HOST_DEVICE inline int BinOf(std::uint32_t u, std::uint32_t mantissa) {
  if (u >= kInfinityBits) return u == kInfinityBits ? LaunchBins::kInf : LaunchBins::kNan;
  if (u == 0) return LaunchBins::kZeros;
  return ExponentOver(u, mantissa) - LaunchBins::kLowest;
}

// Writes entry `at` of `to` (0 .. kHighest - kLowest) from a launch's bins; exponent: of the scale.
ADA_HOST_DEVICE inline void WriteBin(const std::uint32_t* bins, int exponent, int at,
                                     ExponentBins& to) {
  const int bin = at + ExponentBins::kLowest + exponent - LaunchBins::kLowest;
  const bool inside = bin >= 0 && bin < LaunchBins::kExponents;
  (&to.counts[0])[at] = inside ? static_cast<std::int64_t>(bins[bin]) : 0;
}

}  // namespace ada::backend::cuda
