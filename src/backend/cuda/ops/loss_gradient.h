// The gradient of one output of a loss: computed value by value in fp32, multiplied by S, rounded
// once.
#pragma once
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/rounding/rounding_stats.h"

namespace ada::backend::cuda {

// Each loss op has one for each of its outputs and calls Round in its Backward. S is read from the
// pass's values on the device, so that a recorded step runs with any S.
class LossGradient {
 public:
  // reference: values are rounded to the gradient's format before S as well. An empty gradient is
  // left alone.
  LossGradient(const Context& context, const Gradient& gradient, bool reference)
      : context_(context), gradient_(gradient) {
    if (!gradient) return;
    stats_ = RoundingStats(context, gradient);
    if (reference) before_ = GridOf(gradient.tensor.format);
  }
  explicit operator bool() const { return static_cast<bool>(gradient_); }

  // unscaled(i): value i before S.
  template <class Unscaled>
  void Round(const Pass& pass, const Unscaled& unscaled) const {
    if (!gradient_) return;
    ForEach(context_.stream, 1, SetLossScale{gradient_.scale, context_.pass});
    stats_.Round(pass, SpanOf(gradient_.tensor),
                 ScaledGradient<Unscaled>{unscaled, before_, context_.pass});
  }

 private:
  Context context_;
  Gradient gradient_;
  NumberGrid before_;
  RoundingStats stats_;
};

}  // namespace ada::backend::cuda
