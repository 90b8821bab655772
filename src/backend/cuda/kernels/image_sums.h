// Gradients of parameters that all images share, and a gradient that is passed on unchanged.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/strip_sums.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// dw[i] = the sum over images of dy's value i, over S, in the order of images; 0 from `values` on.
// For all of dw.
struct ImagesSum {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (i >= values) {
      if (!adds) dw[i] = 0;
      return;
    }
    const float sum =
        SumOfStored(dy, 0, images, [&](std::int64_t image) { return image * per_image + i; });
    const float unscaled = sum / *scale;
    dw[i] = adds ? dw[i] + unscaled : unscaled;
  }
  TensorSpan dy;
  std::int64_t images, per_image, values;
  const float* scale;
  float* dw;
  bool adds;
};

// A gradient's scale that is passed on where nothing else is done.
struct PassScaleOn {
  ADA_HOST_DEVICE void operator()(std::int64_t) const { *to = *from; }
  const float* from;
  float* to;
};

}  // namespace ada::backend::cuda
