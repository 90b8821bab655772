// Formulas of the losses of pixels and of default boxes, written once for every backend: in double,
// with the functions of elementary.h, each result rounded to fp32 once.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/elementary.h"
#include "number/host_device.h"

namespace ada::backend {

// The factor of a gradient with this weight in a mean over `terms`; without terms 0.
ADA_HOST_DEVICE static inline double TermFactor(double weight, std::int64_t terms) {
  return terms == 0 ? 0 : weight / static_cast<double>(terms);
}

// --- Softmax cross-entropy of one row of scores ---

// ln(sum of e^score), which the functions below take as `log_sum`.
ADA_HOST_DEVICE static inline double LogSumExp(double highest, double sum) {
  return highest + Logarithm(sum);
}
// The gradient of a score, times `factor`; NaN where the score is, though its class weighs nothing.
ADA_HOST_DEVICE static inline float ScoreGradient(float score, double log_sum, double target,
                                                  double factor) {
  const double p = Exponential(static_cast<double>(score) - log_sum);
  return static_cast<float>((p - target) * factor);
}

// --- Huber's loss ---

// The loss of a difference, which is quadratic within `width`; SSD takes 1.
ADA_HOST_DEVICE static inline double HuberLoss(double d, double width = 1) {
  const double size = d < 0 ? -d : d;
  return size <= width ? d * d / 2 : width * (size - width / 2);
}
// NaN is kept.
ADA_HOST_DEVICE static inline double HuberSlope(double d, double width = 1) {
  return d < -width ? -width : d > width ? width : d;
}

ADA_HOST_DEVICE static inline double LocationDifference(float location, float target) {
  return static_cast<double>(location) - static_cast<double>(target);
}

// --- Hard negatives ---

// The sort key by which background boxes are chosen, largest first: the order of their fp32
// cross-entropies, NaN last.
ADA_HOST_DEVICE static inline std::uint32_t NegativeKey(double loss) {
  const auto rounded = static_cast<float>(loss);
  if (!(rounded == rounded)) return 0;
  return __builtin_bit_cast(std::uint32_t, rounded > 0 ? rounded : 0.0f) + 1;
}
// How many boxes of an image are chosen at most.
ADA_HOST_DEVICE static inline std::int64_t NegativesWanted(double each, std::int64_t positives) {
  return static_cast<std::int64_t>(std::ceil(each * static_cast<double>(positives)));
}

}  // namespace ada::backend
