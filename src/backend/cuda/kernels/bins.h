// Counting values by binary exponent: bin k of a launch counts the magnitudes |x| with
// floor(log2(|x| / m)) = kLowest + k, where m is the mantissa of the scale that they carry; inf,
// NaN and zeros have bins of their own behind these.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/number.h"
#include "core/exponent_bins.h"
#include "core/host_device.h"

namespace ada::backend::cuda {

struct LaunchBins {
  static constexpr int kLowest = -150, kExponents = 278;  // 2^-149 / almost 2, to below 2^128
  static constexpr int kZeros = kExponents, kInf = kExponents + 1, kNan = kExponents + 2;
  static constexpr int kCount = kExponents + 3;
};

// A positive, finite scale as 1.mantissa * 2^exponent. Others belong to steps in which nothing is
// finite: as 1.
struct SplitScale {
  std::uint32_t mantissa = 0;  // 23 bits
  int exponent = 0;
};
ADA_HOST_DEVICE inline SplitScale Split(float scale) {
  const std::uint32_t bits = BitsOf(scale);
  if (bits == 0 || bits >= kInfinityBits) return {};
  const int field = static_cast<int>(bits >> 23);
  if (field != 0) return {bits & 0x7fffffu, field - 127};
  const int top = TopBit(bits);
  return {(bits << (23 - top)) & 0x7fffffu, top - 149};
}

// The bin of a value whose magnitude has the bits u.
ADA_HOST_DEVICE inline int BinOf(std::uint32_t u, std::uint32_t mantissa) {
  if (u >= kInfinityBits) return u == kInfinityBits ? LaunchBins::kInf : LaunchBins::kNan;
  if (u == 0) return LaunchBins::kZeros;
  // A magnitude minus the mantissa takes one off the exponent where that is due.
  if (u >= 0x800000u) return static_cast<int>((u - mantissa) >> 23) - 127 - LaunchBins::kLowest;
  const int top = TopBit(u);
  const bool less = ((u << (23 - top)) & 0x7fffffu) < mantissa;
  return top - 149 - (less ? 1 : 0) - LaunchBins::kLowest;
}

// Writes entry `at` of `to` (0 .. kHighest - kLowest) from a launch's bins; exponent: of the scale.
ADA_HOST_DEVICE inline void WriteBin(const std::uint32_t* bins, int exponent, int at,
                                     ExponentBins& to) {
  const int bin = at + ExponentBins::kLowest + exponent - LaunchBins::kLowest;
  const bool inside = bin >= 0 && bin < LaunchBins::kExponents;
  (&to.counts[0])[at] = inside ? static_cast<std::int64_t>(bins[bin]) : 0;
}

}  // namespace ada::backend::cuda
