// fp16 rounding for code that runs on host and device (core/number_format.h is for the host alone).
#pragma once
#include <cmath>

#include "core/host_device.h"

namespace ada::scaling {

// The fp16 value nearest to `x` (ties to even, subnormals kept), from 65520 on inf. NaN stays NaN.
ADA_HOST_DEVICE inline double RoundToHalf(double x) {
  const double magnitude = std::fabs(x);
  if (!(magnitude > 0) || magnitude - magnitude != 0) return x;
  if (magnitude >= 65520) return std::copysign(HUGE_VAL, x);
  int exponent = 0;
  std::frexp(magnitude, &exponent);
  // Spacing of the binade [2^(exponent-1), 2^exponent), at least that of the subnormals.
  const int spacing = (exponent < -13 ? -13 : exponent) - 11;
  const double scaled = std::ldexp(magnitude, -spacing);
  double whole = std::floor(scaled);
  const double rest = scaled - whole;
  if (rest > 0.5 || (rest == 0.5 && std::fmod(whole, 2.0) == 1)) ++whole;
  return std::copysign(std::ldexp(whole, spacing), x);
}

}  // namespace ada::scaling
