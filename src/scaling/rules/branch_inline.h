// The scale for the sum of the gradients of several branches: our rule and the authors'
// (src/scaling/README.md). Only rules_inline.h includes this file.
#pragma once
#include "number/number_grid.h"
#include "scaling/rules/methods_inline.h"
#include "scaling/rules/rule_types.h"

namespace ada::scaling {

// `largest` not finite (the step is skipped anyway): the smallest scale, which is also returned
// where it is not finite and no other fits. Never below 2^-126.
ADA_HOST_DEVICE inline float BranchTarget(const float* scales, int count, double largest,
                                          double u_max) {
  float smallest = scales[0];
  float fitting = 0;
  for (int i = 0; i < count; ++i) {
    if (scales[i] < smallest) smallest = scales[i];
    if (scales[i] > fitting && largest * scales[i] < u_max) fitting = scales[i];
  }
  if (!detail::IsFinite(largest)) return smallest;
  if (fitting > 0) return fitting;
  if (!detail::IsFinite(smallest)) return smallest;
  // No branch's scale fits: halving the smallest one, at most down to 1/16, keeps the values' order
  // of magnitude; below that a power of two is computed directly.
  float target = smallest;
  while (target >= 0.125f && !(largest * target < u_max)) target /= 2;
  if (largest * target < u_max) return target;
  double power = detail::PowerOfTwoBelow(u_max / largest);
  if (!(largest * power < u_max)) power /= 2;  // u_max / largest is itself a power of two
  return static_cast<float>(detail::Greatest(power, kSmallestScale));
}

ADA_HOST_DEVICE inline bool BranchSumOverflows(float target, double sum_max, double u_max) {
  return sum_max >= u_max && !(target < kSmallestBranchTarget);
}
ADA_HOST_DEVICE inline bool BranchesFit(float target, double largest, double u_max) {
  return largest * static_cast<double>(target) < u_max;
}

// Products of fp32 values are rounded to fp32; once the scale was halved it is a double in the
// original, and so is the product. Comparisons are written as there, so that NaN is treated alike;
// where all scales are infinite the original never ends, and the scale is returned, or NaN.
ADA_HOST_DEVICE inline float BranchTargetReference(const float* scales, int count, float largest,
                                                   float u_max) {
  float smallest = scales[0], fitting = 0;
  bool fits = false;
  for (int i = 0; i < count; ++i) {
    if (scales[i] < smallest) smallest = scales[i];
    if (static_cast<float>(largest * scales[i]) < u_max && (!fits || scales[i] > fitting)) {
      fitting = scales[i];
      fits = true;
    }
  }
  if (fits) return fitting;
  double target = smallest;
  bool halved = false;
  while (target >= 0.125 && detail::IsFinite(target) && !(halved && target * largest < u_max)) {
    target /= 2;
    halved = true;
  }
  const double product =
      halved ? target * largest : static_cast<double>(static_cast<float>(smallest * largest));
  return product >= u_max ? NAN : static_cast<float>(target);
}

ADA_HOST_DEVICE inline float BranchLargestReference(const float* magnitudes, const float* scales,
                                                    int count) {
  float largest = magnitudes[0] / scales[0];
  for (int i = 1; i < count; ++i) {
    const float unscaled = magnitudes[i] / scales[i];
    if (unscaled > largest) largest = unscaled;
  }
  return largest;
}

ADA_HOST_DEVICE inline float BranchFactorReference(float target, float scale, bool fp16) {
  const float factor = target / scale;
  return fp16 ? static_cast<float>(RoundToHalf(factor)) : factor;
}

}  // namespace ada::scaling
