// Number formats a second time, by another road (arithmetic in double), as the tests' truth.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "core/number_format.h"

namespace ada::test {

// Nearest even by the processor's own rounding: adding and subtracting 1.5 * 2^(52 + q) leaves a
// double that is a multiple of 2^q.
inline float RoundIndependently(const NumberFormat& format, float x) {
  if (!std::isfinite(x)) return x;
  const double magnitude = std::fabs(static_cast<double>(x));
  const auto exponent = static_cast<int>(std::bit_cast<std::uint64_t>(magnitude) >> 52) - 1023;
  const int lowest = 1 - format.bias;
  const int spacing = (exponent < lowest ? lowest : exponent) - format.mantissa_bits;
  const double shift = std::bit_cast<double>(static_cast<std::uint64_t>(spacing + 52 + 1023) << 52);
  const volatile double moved = magnitude + 1.5 * shift;
  double rounded = moved - 1.5 * shift;
  if (rounded > format.largest()) rounded = std::numeric_limits<double>::infinity();
  return std::copysign(static_cast<float>(rounded), x);
}

// The value of an IEEE-like code of 1 + exponent_bits + mantissa_bits bits.
inline double DecodeIndependently(const NumberFormat& format, unsigned code) {
  const unsigned mantissa = code & ((1u << format.mantissa_bits) - 1);
  const unsigned top = (1u << format.exponent_bits) - 1;
  const unsigned exponent = code >> format.mantissa_bits & top;
  const double sign = code >> (format.mantissa_bits + format.exponent_bits) & 1u ? -1 : 1;
  if (exponent == top) {
    return mantissa ? std::numeric_limits<double>::quiet_NaN()
                    : sign * std::numeric_limits<double>::infinity();
  }
  const int e = static_cast<int>(exponent == 0 ? 1 : exponent) - format.bias;
  const double fraction = std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits);
  return sign * std::ldexp((exponent == 0 ? 0 : 1) + fraction, e);
}

// Equal bits, or both NaN.
inline bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace ada::test
