// Formulas of norms and of the loss of images, written once for every backend: sums in double, each
// result rounded to fp32 once.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/elementary.h"
#include "number/host_device.h"
#include "number/random.h"

namespace ada::backend {

// --- Batch norm, of one channel ---

ADA_HOST_DEVICE static inline float InverseDeviation(double variance, double eps) {
  return static_cast<float>(1 / std::sqrt(variance + eps));
}

// The running averages after a batch with this mean and sum of squared deviations of `count`
// values: their variance is unbiased, like PyTorch's. Statistics that are not finite are ignored:
// the step will be skipped, and they must not outlast it.
ADA_HOST_DEVICE static inline void MoveRunning(double momentum, double mean, double m2,
                                               double count, float& running_mean,
                                               float& running_var) {
  if (!(std::fabs(mean) < HUGE_VAL) || !(std::fabs(m2) < HUGE_VAL)) return;
  const double others = count - 1 > 1.0 ? count - 1 : 1.0;
  running_mean =
      static_cast<float>((1 - momentum) * static_cast<double>(running_mean) + momentum * mean);
  running_var = static_cast<float>((1 - momentum) * static_cast<double>(running_var) +
                                   momentum * m2 / others);
}

// Means and gradients of a channel, from sums of dy and dy * xhat that carry `scale`.
struct ChannelGradient {
  float mean_dy, slope;  // slope: mean of dy * xhat, times inverse
  float dgamma, dbeta;
};
ADA_HOST_DEVICE static inline ChannelGradient ChannelGradientOf(double dy, double dy_xhat,
                                                                double count, float inverse,
                                                                float scale) {
  return {static_cast<float>(dy / count), static_cast<float>(dy_xhat / count) * inverse,
          static_cast<float>(dy_xhat) / scale, static_cast<float>(dy) / scale};
}

// --- Norms of a group of values ---

// Sums over a group, which is a pixel's channels or a group of an image's channels: value i of a
// run of adjacent channels is added to lane i % 16, run by run, in double; at the end the lanes are
// added in their order.
inline constexpr int kSumLanes = 16;
ADA_HOST_DEVICE static inline double SumOfLanes(const double* lanes, std::int64_t step = 1) {
  double sum = 0;
  for (int k = 0; k < kSumLanes; ++k) sum += lanes[k * step];
  return sum;
}

// (value - mean) / sqrt(var + eps).
ADA_HOST_DEVICE static inline float NormalizedValue(float x, float mean, float inverse) {
  return (x - mean) * inverse;
}
// g: dy * gamma; mean_g, mean_ghat: means over the group of g and of g * xhat.
ADA_HOST_DEVICE static inline float NormalizedDx(float g, float xhat, float inverse, float mean_g,
                                                 float mean_ghat) {
  return ((g - mean_g) - xhat * mean_ghat) * inverse;
}

// For L2 normalization nothing is subtracted: its mean and mean_g are 0, and mean_ghat is sum(g *
// x) / norm.
ADA_HOST_DEVICE static inline float InverseLength(double norm, double eps) {
  return static_cast<float>(1 / (norm + eps));
}
ADA_HOST_DEVICE static inline float ProjectionOnX(double product, float norm) {
  return norm > 0 ? static_cast<float>(product / static_cast<double>(norm)) : 0.0f;
}

// --- Local response normalization ---

// The factors of LrnSpec, in double; `alpha` is over the size.
struct LrnFactors {
  double alpha, beta, k;

  ADA_HOST_DEVICE double Base(double squares) const { return k + alpha * squares; }
  // base^-beta.
  ADA_HOST_DEVICE double Power(double base) const { return Exponential(-beta * Logarithm(base)); }
  // scaled: dy * base^-beta; sum: of Term over the channels whose sums hold x.
  ADA_HOST_DEVICE static double Term(double scaled, double x, double base) {
    return scaled * x / base;
  }
  ADA_HOST_DEVICE double Dx(double scaled, double x, double sum) const {
    return scaled - 2 * alpha * beta * x * sum;
  }
};

// --- Other sums and factors ---

// A parameter's gradient, computed from a sum that carries `scale`.
ADA_HOST_DEVICE static inline float UnscaledSum(double sum, float scale) {
  return static_cast<float>(sum) / scale;
}
// The factor of image `image` under stochastic depth: 0, or 1 / (1 - rate) if it is kept.
ADA_HOST_DEVICE static inline float ImageFactor(std::uint64_t key, std::uint64_t draw,
                                                std::int64_t image, float rate, bool batch) {
  const std::uint64_t at = batch ? 0 : static_cast<std::uint64_t>(image);
  return UniformFloat(Philox(key, draw, at / 4)[at % 4]) >= rate ? 1.0f / (1.0f - rate) : 0.0f;
}

// --- Softmax cross-entropy ---

// The probability that class k should have.
ADA_HOST_DEVICE static inline double TargetOf(std::int64_t k, std::int64_t label,
                                              std::int64_t classes, double smoothing) {
  return smoothing / static_cast<double>(classes) + (k == label ? 1 - smoothing : 0);
}

// The same where a row has two labels, the first with this share.
ADA_HOST_DEVICE static inline double MixedTargetOf(std::int64_t k, std::int64_t label,
                                                   std::int64_t second, float share,
                                                   std::int64_t classes, double smoothing) {
  const double first = share, other = 1 - first;
  const double mixed = (k == label ? first : 0) + (k == second ? other : 0);
  return smoothing / static_cast<double>(classes) + (1 - smoothing) * mixed;
}

// The gradient of a logit for the mean over `rows` rows; over none it is zero.
ADA_HOST_DEVICE static inline float LogitGradient(double log_p, double target, std::int64_t rows) {
  if (rows == 0) return 0;
  return static_cast<float>((std::exp(log_p) - target) / static_cast<double>(rows));
}

// Whether class k ranks before the label: its logit is larger, or equal with a lower index.
ADA_HOST_DEVICE static inline bool ComesBefore(double z, std::int64_t k, double mine,
                                               std::int64_t label) {
  return z > mine || (z == mine && k < label);
}
// Whether the label is among the first `first` classes, of which `better` come before it. A NaN
// never hits.
ADA_HOST_DEVICE static inline int Hits(double mine, std::int64_t better, std::int64_t first) {
  return mine == mine && better < first ? 1 : 0;
}

}  // namespace ada::backend
