// The gradient of one output of a loss: computed in fp32, multiplied by S, rounded once.
#pragma once
#include <cstdint>

#include "backend/cpu/context.h"
#include "backend/cpu/rounding/blocks.h"
#include "backend/cpu/rounding/rounding_stats.h"

namespace ada::backend::cpu {

// Each loss op has one for each of its outputs, and calls Round in its Backward. It sets the scale
// of the gradient to S: this is where S enters the network.
class LossGradient {
 public:
  // reference: values are rounded to the gradient's format before S as well.
  LossGradient(const Gradient& gradient, bool reference)
      : gradient_(gradient), reference_(reference), stats_(gradient) {}

  // values_of(image, n, worker): the unscaled gradient of images image .. image + n in fp32, which
  // may be changed. Nothing happens where the gradient is empty.
  template <class Values>
  void Round(const Context& context, const Pass& pass, Values&& values_of) {
    if (!gradient_) return;
    *gradient_.scale = pass.loss_scale;
    const Tensor& out = gradient_.tensor;
    ForBlocks(context, out.shape, pass.rows,
              [&](std::int64_t image, std::int64_t n, std::int64_t block, int worker) {
                float* values = values_of(image, n, worker);
                const std::int64_t count = n * out.shape.per_image();
                // The authors' program rounds the loss's gradient before it multiplies by S, in the
                // gradient's format.
                if (reference_)
                  context.kernels.round(values, 1.0f, {values, Storage::kF32}, count,
                                        RoundOnly(out.format));
                context.kernels.round(values, pass.loss_scale, At(out, image), count,
                                      stats_.For(pass, block));
              });
    stats_.Finish(pass);
  }

 private:
  Gradient gradient_;
  bool reference_;
  RoundingStats stats_;
};

}  // namespace ada::backend::cpu
