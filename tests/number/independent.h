// Number formats a second time, by another road (arithmetic in double), as the tests' truth.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "number/number_format.h"

namespace ada::test {

// Exponent of the smallest normal number, and the largest finite value.
inline int LowestIndependently(const NumberFormat& format) {
  return format.is_signed ? 1 - format.bias : -format.bias;
}
inline double LargestIndependently(const NumberFormat& format) {
  const int m = format.mantissa_bits, top = (1 << format.exponent_bits) - 1;
  const bool all_ones_is_nan = !format.has_inf && format.has_nan && format.has_negative_zero;
  if (format.has_inf && format.exponent_bits == 1)  // no normal numbers
    return std::ldexp(1 - std::ldexp(1.0, -m), 1 - format.bias);
  if (format.has_inf || (all_ones_is_nan && m == 0))
    return std::ldexp(2 - std::ldexp(1.0, -m), top - 1 - format.bias);
  return std::ldexp(2 - std::ldexp(all_ones_is_nan ? 2.0 : 1.0, -m), top - format.bias);
}
// Distance of the values around `x` (finite), if there were no largest one.
inline double SpacingAt(const NumberFormat& format, double x) {
  const int exponent = x == 0 ? LowestIndependently(format) : std::ilogb(x);
  const int lowest = LowestIndependently(format);
  return std::ldexp(1.0, (exponent < lowest ? lowest : exponent) - format.mantissa_bits);
}

// `magnitude` lies on the grid of the format, which has no end here.
inline float KeepIndependently(const NumberFormat& format, double magnitude, bool negative) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const double largest = LargestIndependently(format);
  if (!format.is_signed) magnitude = std::max(magnitude, std::ldexp(1.0, -format.bias));
  if (magnitude > largest) {
    if (!format.saturate && format.has_nan)
      return format.has_inf ? (negative ? -kInf : kInf) : std::numeric_limits<float>::quiet_NaN();
    magnitude = largest;
  }
  if (magnitude == 0 && !format.has_negative_zero) negative = false;
  return static_cast<float>(negative ? -magnitude : magnitude);
}

// Nearest even by the processor's own rounding: adding and subtracting 1.5 * 2^(52 + q) leaves a
// double that is a multiple of 2^q.
inline float RoundIndependently(const NumberFormat& format, double x) {
  const bool negative = std::signbit(x);
  if (std::isnan(x)) return format.has_nan ? static_cast<float>(x) : negative ? 0.0f : -0.0f;
  if (!format.is_signed && (negative || x == 0)) return std::numeric_limits<float>::quiet_NaN();
  const double magnitude = std::fabs(x);
  // Far beyond the largest value no rounding matters, and the sum below might be infinite.
  if (magnitude > 0x1p200) return KeepIndependently(format, magnitude, negative);
  const bool e8m0 = !format.is_signed && format.mantissa_bits == 0 && format.bias == 127;
  if (e8m0 && magnitude > 0x1p-127 && magnitude < 0x1p-126) return 0x1p-126f;  // as ml_dtypes
  const double shift = std::ldexp(SpacingAt(format, magnitude), 52);
  const volatile double moved = magnitude + 1.5 * shift;
  return KeepIndependently(format, moved - 1.5 * shift, negative);
}

// The value of a code of 1 + exponent_bits + mantissa_bits bits (unsigned formats: without the 1).
inline double DecodeIndependently(const NumberFormat& format, unsigned code) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const int width = format.mantissa_bits + format.exponent_bits;
  const unsigned mantissa = code & ((1u << format.mantissa_bits) - 1);
  const unsigned top = (1u << format.exponent_bits) - 1;
  const unsigned exponent = code >> format.mantissa_bits & top;
  const bool negative = format.is_signed && (code >> width & 1u) != 0;
  const double sign = negative ? -1 : 1;
  const bool all_ones = (code & ((1u << width) - 1)) == (1u << width) - 1;
  if (format.has_inf && exponent == top)
    return mantissa ? kNan : sign * std::numeric_limits<double>::infinity();
  if (!format.has_inf && format.has_nan && format.has_negative_zero && all_ones) return kNan;
  if (!format.has_negative_zero && code == 1u << width) return kNan;
  const bool subnormal = exponent == 0 && format.is_signed;
  const int e = static_cast<int>(subnormal ? 1 : exponent) - format.bias;
  const double fraction = std::ldexp(static_cast<double>(mantissa), -format.mantissa_bits);
  return sign * std::ldexp((subnormal ? 0 : 1) + fraction, e);
}
// How many codes from 0 up are finite and not negative.
inline unsigned PositiveCodes(const NumberFormat& format) {
  const unsigned all = 1u << (format.exponent_bits + format.mantissa_bits);
  if (format.has_inf) return all - (1u << format.mantissa_bits);
  return format.has_nan && format.has_negative_zero ? all - 1 : all;
}

// Equal bits, or both NaN.
inline bool Same(float a, float b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

}  // namespace ada::test
