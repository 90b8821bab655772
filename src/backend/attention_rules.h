// The inputs of the rules of attention's four alphas (AttentionSpec), the same in every backend:
// statistics of a gradient and of the other factor of its matmul.
#pragma once
#include "backend/decisions.h"
#include "number/host_device.h"
#include "number/stats.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

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
ADA_HOST_DEVICE static inline scaling::Observation Seen(const TensorMoments& gradient,
                                                        const TensorMoments& factor) {
  scaling::Observation seen;
  seen.dy = gradient, seen.w = factor;
  seen.product_max = LargestOf(gradient) * LargestOf(factor);
  if (seen.product_max != 0)
    seen.product_min = static_cast<double>(gradient.min_abs) * static_cast<double>(factor.min_abs);
  return seen;
}

}  // namespace ada::backend
