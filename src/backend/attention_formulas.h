// The probabilities of attention (AttentionSpec), written once for every backend: softmax of factor
// * score over what a query sees. And the inputs of the rules of its four alphas: statistics of a
// gradient and of the other factor of its matmul.
#pragma once
#include <cstdint>

#include "backend/decisions.h"
#include "backend/elementary.h"
#include "number/host_device.h"
#include "number/stats.h"
#include "scaling/rules/rules.h"

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

// Moments of values multiplied by `factor`, from the moments of the values themselves.
ADA_HOST_DEVICE static inline TensorMoments Times(TensorMoments moments, double factor) {
  moments.mean *= factor, moments.mean_square *= factor * factor;
  moments.min = static_cast<float>(static_cast<double>(moments.min) * factor);
  moments.max = static_cast<float>(static_cast<double>(moments.max) * factor);
  moments.min_abs = static_cast<float>(static_cast<double>(moments.min_abs) * factor);
  return moments;
}
// Moments of elementwise products of two tensors, as far as the rules read them.
ADA_HOST_DEVICE static inline TensorMoments ProductMoments(const TensorMoments& one,
                                                           const TensorMoments& other) {
  TensorMoments both;
  both.mean = 0;
  both.mean_square = one.mean_square * other.mean_square;
  both.max = static_cast<float>(LargestOf(one) * LargestOf(other));
  both.min = -both.max;
  both.min_abs = one.min_abs * other.min_abs;
  return both;
}
// A rule's observation of a product of a gradient and a factor; the extremes of products are
// computed from the extremes of both, whichever values really meet.
ADA_HOST_DEVICE static inline scaling::Observation ObservationOf(const TensorMoments& gradient,
                                                                 const TensorMoments& factor) {
  scaling::Observation seen;
  seen.dy = gradient, seen.w = factor;
  seen.product_max = LargestOf(gradient) * LargestOf(factor);
  if (seen.product_max != 0)
    seen.product_min = static_cast<double>(gradient.min_abs) * static_cast<double>(factor.min_abs);
  return seen;
}

}  // namespace ada::backend
