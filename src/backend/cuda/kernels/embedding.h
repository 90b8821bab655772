// Values of layers that add what they have learned of a token or a place, and sums of their
// gradients, each in a fixed order.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/for_every.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "core/host_device.h"

namespace ada::backend::cuda {

// The row of w that a place's token has.
struct GatheredValue {
  ADA_HOST_DEVICE std::int64_t Where(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t place = at / channels;
    return std::int64_t{tokens[place]} * channels + (at - place * channels);
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return w[Where(i)]; }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    if (channels % 4 == 0) return reinterpret_cast<const Vec4*>(w)[Where(i) / 4];
    Vec4 v;
    for (int k = 0; k < 4; ++k) v.of[k] = (*this)(i + k);
    return v;
  }
  const float* w;
  const std::int32_t* tokens;
  std::uint32_t channels;
};

// dw of an embedding: the sum of dy over a token's places, in their order, over S; added to what is
// there where `adds`. `first` and `places` are of sort_places.h.
struct PlacesSum {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t token = at / channels, channel = at - token * channels;
    const std::int32_t begin = first[token], end = first[token + 1];
    if (begin == end) return adds ? dw[i] : 0.0f;
    const auto load = [&](std::int64_t k) {
      return Load(dy, std::int64_t{places[k]} * channels + channel);
    };
    float sum = load(begin);
    ForEvery<16>(begin + 1, end, 1, load, [&](std::int64_t, float v) { sum = sum + v; });
    const float unscaled = sum / *scale;
    return adds ? dw[i] + unscaled : unscaled;
  }
  const std::int32_t *first, *places;
  TensorSpan dy;
  std::uint32_t channels;
  const float *scale, *dw;
  bool adds;
};
// The same where dw is a part of a sum over processes: stored as it is.
struct StorePlacesSum {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { to[i] = sum(i); }
  PlacesSum sum;
  float* to;
};

// x plus what its place has, the same in every image.
struct PositionedValue {
  ADA_HOST_DEVICE std::uint32_t Place(std::int64_t i) const {
    return static_cast<std::uint32_t>(i) % per_image;
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Load(x, i) + w[Place(i)]; }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    std::uint32_t place = Place(i);
    for (float& one : v.of) {
      one = one + w[place];
      place = place + 1 < per_image ? place + 1 : 0;
    }
    return v;
  }
  TensorSpan x;
  const float* w;
  std::uint32_t per_image;  // values
};

// The values of w in front of those of x, image by image.
struct FirstTokenValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i), all = channels + per_image;
    const std::uint32_t image = at / all, place = at - image * all;
    return place < channels ? w[place]
                            : Load(x, std::int64_t{image} * per_image + (place - channels));
  }
  TensorSpan x;
  const float* w;
  std::uint32_t channels, per_image;  // of x
};

// dw[i] = the sum over images of dy's value i, over S, in the order of images; 0 from `values` on.
// For all of dw.
struct ImagesSum {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (i >= values) {
      if (!adds) dw[i] = 0;
      return;
    }
    float sum = 0;
    ForEvery<16>(
        0, images, 1, [&](std::int64_t image) { return Load(dy, image * per_image + i); },
        [&](std::int64_t, float v) { sum = sum + v; });
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
