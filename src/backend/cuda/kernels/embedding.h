// Values of embeddings, and sums of their gradients, in the order of places.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/strip_sums.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// The row of w that a place's token has.
struct GatheredValue {
  ADA_HOST_DEVICE std::int64_t Where(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t place = at / channels;
    return std::int64_t{tokens[place]} * channels + (at - place * channels);
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return w[Where(i)]; }
  // A row that is no multiple of four may end between the four values.
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

// dw of an embedding: the sum of dy over a token's positions, in order, divided by S; with `adds`
// it is added to dw. `first` and `places`: see sort_places.h.
// Body of ForEach over the values of dw.
struct PlacesSum {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t token = at / channels, channel = at - token * channels;
    const std::int32_t begin = first[token], end = first[token + 1];
    // A token without a place has a zero gradient, or what was there.
    if (begin == end) {
      if (!adds) dw[i] = 0;
      return;
    }
    const auto place = [&](std::int64_t k) { return std::int64_t{places[k]} * channels + channel; };
    const float sum = SumOfStored(dy, begin + 1, end, place, Load(dy, place(begin)));
    const float unscaled = sum / *scale;
    dw[i] = adds ? dw[i] + unscaled : unscaled;
  }
  const std::int32_t *first, *places;
  TensorSpan dy;
  std::uint32_t channels;
  const float* scale;
  float* dw;
  bool adds;
};

}  // namespace ada::backend::cuda
