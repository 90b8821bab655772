// The probabilities of attention (AttentionSpec), written once for every backend: softmax of
// factor * score over what a query sees.
#pragma once
#include <cstdint>

#include "backend/elementary.h"
#include "number/host_device.h"

namespace ada::backend {

// e^x of -87 <= x <= 0, to 1e-7 of it: x = n ln 2 + r, |r| <= ln(2) / 2, a polynomial of r, times
// 2^n. Below -87 what it gives is not used.
ADA_HOST_DEVICE static inline __attribute__((always_inline)) float SmallExponential(float x) {
  constexpr float kRound = 0x1.8p23f;
  x = x < -87.0f ? -87.0f : x;
  const float n = (x * 0x1.715476p0f + kRound) - kRound;
  const float r = (x - n * 0x1.62e4p-1f) - n * 0x1.7f7d1cp-20f;
  float sum = 0x1.6c16c2p-10f;     // 1 / 720
  sum = sum * r + 0x1.111112p-7f;  // 1 / 120
  sum = sum * r + 0x1.555556p-5f;  // 1 / 24
  sum = sum * r + 0x1.555556p-3f;  // 1 / 6
  sum = sum * r + 0.5f;
  sum = sum * r + 1.0f;
  sum = sum * r + 1.0f;
  const auto power = static_cast<std::uint32_t>(static_cast<std::int32_t>(n) + 127) << 23;
  return sum * __builtin_bit_cast(float, power);
}

// Whether finite scores from `smallest` to `top` have probabilities within fp32's normal range, so
// that SmallExponential serves.
ADA_HOST_DEVICE static inline __attribute__((always_inline)) bool IsNarrow(float smallest,
                                                                           float top,
                                                                           float factor) {
  return (smallest - top) * factor > -80.0f;
}
// e^(factor * (score - top)) of any scores: NaN where one of them is, or where all are infinite.
ADA_HOST_DEVICE static inline double WideExponential(float score, float top, float factor) {
  return Exponential((static_cast<double>(score) - static_cast<double>(top)) *
                     static_cast<double>(factor));
}

}  // namespace ada::backend
