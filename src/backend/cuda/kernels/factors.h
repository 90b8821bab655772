// Values times a factor: of another tensor, of their channel, of their image; and pixels repeated.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/elementwise.h"
#include "backend/formulas.h"

namespace ada::backend::cuda {

// a * b, of which b may have one value a channel for all pixels of an image.
struct ProductValue {
  ADA_HOST_DEVICE std::int64_t Other(std::int64_t i) const {
    if (!gate) return i;
    const auto at = static_cast<std::uint32_t>(i);
    return std::int64_t{at / per_image} * channels + at % channels;
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Load(a, i) * Load(b, Other(i)); }

  TensorSpan a, b;
  bool gate;
  std::uint32_t per_image, channels;  // values of an image of a
};

// x * w by channel.
struct ChannelProduct {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return Load(x, i) * w[static_cast<std::uint32_t>(i) % channels];
  }

  TensorSpan x;
  const float* w;
  std::uint32_t channels;
};

// Values, times the slope of their channel where `at` is not positive.
struct SlopedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const float value = Load(values, i);
    return Load(at, i) > 0 ? value : value * w[static_cast<std::uint32_t>(i) % slopes];
  }

  TensorSpan values, at;
  const float* w;
  std::uint32_t slopes;  // as many as channels, or one
};

// x * factor + offset by channel; no offset where it is null.
struct AffineValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::uint32_t channel = static_cast<std::uint32_t>(i) % channels;
    const float product = Load(x, i) * factor[channel];
    return offset ? product + offset[channel] : product;
  }

  TensorSpan x;
  const float *factor, *offset;
  std::uint32_t channels;
};

// x / (1 - rate) where the image's random word says so, else 0.
struct KeptImageValue {
  ADA_HOST_DEVICE float Factor(std::int64_t i) const {
    const auto image = static_cast<std::uint32_t>(i) / per_image;
    return ImageFactor(pass->seed ^ layer, pass->draw, first_image + image, rate, batch);
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const float factor = Factor(i);
    return factor == 0 ? 0.0f : Load(x, i) * factor;
  }

  TensorSpan x;
  const PassValues* pass;
  std::uint64_t layer;
  float rate;
  bool batch;
  std::uint32_t per_image;
  std::int64_t first_image;  // in the batch of all processes
};

// Every pixel scale x scale times.
struct RepeatedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    ImageIndex at = IndexOf(y, i);
    at.h /= scale, at.w /= scale;
    return Load(from, OffsetOf(x, at));
  }

  TensorSpan from;
  ImageShape x, y;
  int scale;
};
// The sum over a pixel's copies, row by row.
struct RepeatedGradient {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const ImageIndex at = IndexOf(x, i);
    float sum = 0;
    for (int r = 0; r < scale; ++r)
      for (int k = 0; k < scale; ++k)
        sum = sum + Load(dy, OffsetOf(y, {at.image, at.h * scale + r, at.w * scale + k, at.c}));
    return sum;
  }

  TensorSpan dy;
  ImageShape x, y;
  int scale;
};

}  // namespace ada::backend::cuda
