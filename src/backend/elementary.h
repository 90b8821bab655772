// Exponentials and logarithms of sums, products and quotients in double, so that each instruction
// set and each device gives the same bits.
#pragma once
#include <cmath>
#include <cstdint>

#include "number/host_device.h"

namespace ada::backend {

// x limited to +-700, beyond which these functions exceed fp32's range anyway. NaN is kept.
ADA_HOST_DEVICE static inline double Held(double x) { return x < -700 ? -700 : x > 700 ? 700 : x; }

// e^Held(x) to some 2^-45 of it: x = n ln 2 + r with |r| <= ln(2) / 2, Taylor's polynomial of r,
// times 2^n. There is no branch and no conversion to a whole number in it, so that loops over it
// become vectors in every instruction set.
ADA_HOST_DEVICE static inline double Exponential(double x) {
  x = Held(x);
  // The sum of a number and this is rounded to an integer, whose last bits are those of n.
  constexpr double kRound = 0x1.8p52;
  const double lifted = x * 0x1.71547652b82fep0 + kRound, n = lifted - kRound;
  // ln 2 in two parts; the first has so few digits that its product with n is exact.
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  constexpr int kTerms = 12;
  constexpr double kOver[kTerms] = {1.0,         1.0,          1.0 / 2,       1.0 / 6,
                                    1.0 / 24,    1.0 / 120,    1.0 / 720,     1.0 / 5040,
                                    1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800};
  double sum = 0;
  for (int k = kTerms - 1; k >= 0; --k) sum = sum * r + kOver[k];
  const std::uint64_t power = (__builtin_bit_cast(std::uint64_t, lifted) + 1023) << 52;
  return sum * __builtin_bit_cast(double, power);
}

// ln x to some 2^-50 of 1 + |ln x|; x a normal number above 0. Infinity and NaN stay. x = 2^n m
// with m near 1, and ln m = 2 atanh((m - 1) / (m + 1)) by its series.
ADA_HOST_DEVICE static inline double Logarithm(double x) {
  if (!(x < HUGE_VAL)) return x;
  const auto bits = __builtin_bit_cast(std::uint64_t, x);
  // The number whose bits are 2^52's and the exponent field's is 2^52 + field.
  double n = __builtin_bit_cast(double, (bits >> 52) | 0x4330000000000000u) - (0x1p52 + 1023);
  double m = __builtin_bit_cast(double, (bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  const bool high = m > 0x1.6a09e667f3bcdp0;
  m = high ? m / 2 : m, n = high ? n + 1 : n;
  const double t = (m - 1) / (m + 1), square = t * t;
  constexpr int kTerms = 11;
  constexpr double kOver[kTerms] = {2.0,      2.0 / 3,  2.0 / 5,  2.0 / 7,  2.0 / 9, 2.0 / 11,
                                    2.0 / 13, 2.0 / 15, 2.0 / 17, 2.0 / 19, 2.0 / 21};
  double sum = 0;
  for (int k = kTerms - 1; k >= 0; --k) sum = sum * square + kOver[k];
  return n * 0x1.62e42feep-1 + (n * 0x1.a39ef35793c76p-33 + t * sum);
}

// ln(1 + x) to some 2^-47 of it, for 0 <= x <= 1: 2 atanh(x / (2 + x)) by its series. A NaN stays.
ADA_HOST_DEVICE static inline double LogarithmOfOnePlus(double x) {
  const double t = x / (2 + x), square = t * t;
  constexpr int kTerms = 15;
  double sum = 0;
  for (int k = kTerms - 1; k >= 0; --k) sum = sum * square + 2.0 / (2 * k + 1);
  return t * sum;
}

// e^x - 1 to some 2^-40 of it, for x <= 0; near 0 the first terms of its series. A NaN stays.
ADA_HOST_DEVICE static inline double ExponentialLessOne(double x) {
  double series = 1;
  for (int k = 8; k >= 2; --k) series = 1 + series * x / k;
  return x > -0x1p-5 ? x * series : Exponential(x) - 1;
}

}  // namespace ada::backend
