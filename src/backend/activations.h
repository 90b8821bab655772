// Functions of one value and their slopes, written once for every backend. They consist of sums,
// products and quotients in double, so that each instruction set and each device gives the same
// bits; results are rounded to fp32 once.
#pragma once
#include <cstdint>

#include "core/host_device.h"

namespace ada::backend {

// x within +-700, where what fp32 holds of these functions has long reached its end. A NaN stays.
ADA_HOST_DEVICE static inline double Held(double x) { return x < -700 ? -700 : x > 700 ? 700 : x; }

// e^Held(x) to some 2^-45 of it: x = n ln 2 + r with |r| <= ln(2) / 2, Taylor's polynomial of r,
// times 2^n.
ADA_HOST_DEVICE static inline double Exponential(double x) {
  if (x != x) return x;
  x = Held(x);
  constexpr double kRound = 0x1.8p52;  // a sum with it is a whole number
  const double n = (x * 0x1.71547652b82fep0 + kRound) - kRound;
  // ln 2 in two parts; the first has so few digits that its product with n is exact.
  const double r = (x - n * 0x1.62e42feep-1) - n * 0x1.a39ef35793c76p-33;
  double sum = 1;
  for (int k = 11; k >= 1; --k) sum = 1 + sum * r / k;
  const std::uint64_t power = static_cast<std::uint64_t>(static_cast<std::int64_t>(n) + 1023) << 52;
  return sum * __builtin_bit_cast(double, power);
}

// 1 / (1 + e^-x) and its slope, in double. The slope has no difference of numbers near 1 in it.
ADA_HOST_DEVICE static inline double LogisticOf(double x) { return 1 / (1 + Exponential(-x)); }
ADA_HOST_DEVICE static inline double LogisticSlope(double x) {
  const double e = Exponential(x < 0 ? x : -x);
  return e / ((1 + e) * (1 + e));
}

struct Sigmoid {
  static ADA_HOST_DEVICE float Value(float x) {
    return static_cast<float>(LogisticOf(static_cast<double>(x)));
  }
  static ADA_HOST_DEVICE float Slope(float x) {
    return static_cast<float>(LogisticSlope(static_cast<double>(x)));
  }
};

// x / (1 + e^-x), also called swish.
struct Silu {
  static ADA_HOST_DEVICE float Value(float x) {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(wide * LogisticOf(wide));
  }
  static ADA_HOST_DEVICE float Slope(float x) {
    const auto wide = static_cast<double>(x);
    return static_cast<float>(LogisticOf(wide) + Held(wide) * LogisticSlope(wide));
  }
};

}  // namespace ada::backend
