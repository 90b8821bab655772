// How values are counted and what is computed from the sums, for the kernels of every backend.
// `static`: kernels compiled for several instruction sets must each have their own copy.
#pragma once
#include <cmath>
#include <cstdint>

#include "number/host_device.h"
#include "number/number_grid.h"
#include "number/stats.h"

namespace ada::backend {

// Exponents of magnitudes |x| / m, where m is the mantissa of the scale that values carry:
// floor(log2(|x| / m)) = kLowest + k, from 2^-149 divided by almost 2 to below 2^128.
struct BinRange {
  static constexpr int kLowest = -150, kExponents = 278;
};

// A positive, finite scale as 1.mantissa * 2^exponent. Others belong to steps in which nothing is
// finite: as 1.
struct SplitScale {
  std::uint32_t mantissa = 0;  // 23 bits
  int exponent = 0;
};
ADA_HOST_DEVICE static inline SplitScale Split(float scale) {
  const std::uint32_t bits = BitsOf(scale);
  if (bits == 0 || bits >= kInfinityBits) return {};
  const int field = static_cast<int>(bits >> 23);
  if (field != 0) return {bits & 0x7fffffu, field - 127};
  const int top = TopBit(bits);
  return {(bits << (23 - top)) & 0x7fffffu, top - 149};
}

// floor(log2(|x| / m)) of a magnitude with the bits u, neither zero nor inf nor NaN.
ADA_HOST_DEVICE static inline int ExponentOver(std::uint32_t u, std::uint32_t mantissa) {
  // Subtracting the mantissa lowers the exponent by one where |x|'s mantissa is the smaller.
  if (u >= 0x800000u) return static_cast<int>((u - mantissa) >> 23) - 127;
  const int top = TopBit(u);  // x * 2^-149 = 2^(top - 149) * 1.mantissa
  return top - 149 - (((u << (23 - top)) & 0x7fffffu) < mantissa ? 1 : 0);
}

// Bits of the largest fp32 that is not larger than `edge` times the format's largest value.
ADA_HOST_DEVICE static inline std::uint32_t EdgeBits(double edge, double largest) {
  const double at = edge * largest;
  if (!(at < static_cast<double>(INFINITY))) return kInfinityBits;
  const float near = static_cast<float>(at);
  return BitsOf(near) - (static_cast<double>(near) <= at ? 0 : 1);
}

// The smallest non-zero finite magnitude, from its bits minus 1; 0 if there is none.
ADA_HOST_DEVICE static inline float SmallestOf(std::uint32_t min_bits) {
  return min_bits >= kInfinityBits - 1 ? 0.0f : OfBits(min_bits + 1);
}

// Fills in what follows from counts and sums over values before rounding.
ADA_HOST_DEVICE static inline void FinishStats(double sum, double square, std::uint32_t min_bits,
                                               TensorStats& stats) {
  const auto n = static_cast<double>(stats.numel);
  stats.min_abs = SmallestOf(min_bits);
  stats.mean = sum / n;
  const double variance = square / n - stats.mean * stats.mean;
  stats.std = std::sqrt(variance < 0 ? 0 : variance);
  stats.l2 = std::sqrt(square);
}

// Computes moments from sums over stored values and their extremes; size_only: only mean_square and
// the largest magnitude, stored as max and -min.
ADA_HOST_DEVICE static inline TensorMoments MomentsOf(double values, double sum, double square,
                                                      float min, float max, std::uint32_t min_bits,
                                                      bool size_only) {
  TensorMoments moments;
  moments.mean_square = values > 0 ? square / values : 0;
  if (size_only) {
    const float low = std::fabs(min), high = std::fabs(max);
    moments.max = low < high ? high : low;
    moments.min = -moments.max;
    return moments;
  }
  moments.min = min, moments.max = max;
  moments.min_abs = SmallestOf(min_bits);
  moments.mean = values > 0 ? sum / values : 0;
  return moments;
}

}  // namespace ada::backend
