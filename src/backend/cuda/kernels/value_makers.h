// Values of outputs that depend on few values of the inputs.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/elementary.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Functions and sums ---

// Values of outputs that depend on few values of the inputs, one by one and, where that is quicker,
// by four (round_values.h).
// x as it is.
struct SameValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Load(x, i); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const { return LoadVec4(x, i); }

  TensorSpan x;
};

// max(x, 0); NaN stays.
struct ReluValue {
  static ADA_HOST_DEVICE float Of(float x) { return x <= 0 ? 0.0f : x; }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Of(Load(x, i)); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    for (float& one : v.of) one = Of(one);
    return v;
  }

  TensorSpan x;
};

// dy where y is positive, else 0.
struct MaskedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return Load(y, i) > 0 ? Load(dy, i) : 0.0f;
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(dy, i);
    const Vec4 out = LoadVec4(y, i);
    for (int k = 0; k < 4; ++k) v.of[k] = out.of[k] > 0 ? v.of[k] : 0.0f;
    return v;
  }

  TensorSpan dy, y;
};

// The sum of several tensors, from left to right.
struct SumValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    float sum = Load(first, i);
    if (count > 1) sum = sum + Load(second, i);
    for (int k = 2; k < count; ++k) sum = sum + Load(all[k], i);
    return sum;
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 sum = LoadVec4(first, i);
    if (count > 1) Add(LoadVec4(second, i), sum);
    for (int k = 2; k < count; ++k) Add(LoadVec4(all[k], i), sum);
    return sum;
  }
  static ADA_HOST_DEVICE void Add(const Vec4& term, Vec4& sum) {
    for (int k = 0; k < 4; ++k) sum.of[k] = sum.of[k] + term.of[k];
  }

  TensorSpan first, second;
  const TensorSpan* all;  // in backend memory
  int count;
};

// A cast's gradient: alpha * dy; with `steps`, rounded to dy's format before it goes on.
// `steps` is that of the authors' program; alpha was written by DecideKernel before.
struct ScaledValue {
  ADA_HOST_DEVICE float Of(float x) const { return RoundToGrid(steps, x * *alpha); }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Of(Load(x, i)); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    for (float& one : v.of) one = Of(one);
    return v;
  }

  TensorSpan x;
  const float* alpha;  // in backend memory
  NumberGrid steps;    // exact: none
};

// a * b, of which b may have one value a channel for all pixels of an image.
struct ProductValue {
  // Where value i of a finds its factor in b.
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

// Several tensors' runs of values (a pixel's channels, an image), one tensor after the other.
// A Value of the concatenation op. It looks for the input by steps through the list, which is
// short.
struct JoinedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i), all = static_cast<std::uint32_t>(channels);
    const std::uint32_t pixel = at / all;
    auto channel = static_cast<int>(at - pixel * all);
    int k = 0;
    for (; channel >= parts[k]; ++k) channel -= parts[k];
    return Load(x[k], std::int64_t{pixel} * parts[k] + channel);
  }

  const TensorSpan* x;  // in backend memory, as `parts`
  const int* parts;     // the run of each
  int channels;         // of all
};

// --- Embeddings ---

// Values of embeddings, and sums of their gradients, in the order of places.
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

// --- Softmax of a position ---

// Softmax of each position's channels (SoftmaxSpec).
// The largest score of a position, and the sum of e^(score - that) over its channels.
struct PositionSum {
  double sum;
  float top;
  ADA_HOST_DEVICE float Of(float z) const {
    return static_cast<float>(Exponential(static_cast<double>(z) - static_cast<double>(top)) / sum);
  }
};
// For all positions. A NaN makes its whole position NaN.
struct SumPositions {
  ADA_HOST_DEVICE void operator()(std::int64_t position) const {
    const std::int64_t first = position * channels;
    float top = -HUGE_VALF;
    for (std::int64_t c = 0; c < channels; ++c) {
      const float z = Load(x, first + c);
      top = z > top ? z : top;
    }
    double sum = 0;
    for (std::int64_t c = 0; c < channels; ++c)
      sum += Exponential(static_cast<double>(Load(x, first + c)) - static_cast<double>(top));
    to[position] = {sum, top};
  }
  TensorSpan x;
  std::int64_t channels;
  PositionSum* to;
};
// Probability i, for RoundingStats::Round: unrounded, from the sums of SumPositions.
struct SoftmaxValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return sums[static_cast<std::uint32_t>(i) / channels].Of(Load(x, i));
  }
  TensorSpan x;
  const PositionSum* sums;
  std::uint32_t channels;
};

// The sum of p dy over a position's channels, for all positions.
struct SumSlopes {
  ADA_HOST_DEVICE void operator()(std::int64_t position) const {
    double sum = 0;
    for (std::int64_t c = 0; c < p.channels; ++c) {
      const std::int64_t i = position * p.channels + c;
      sum += static_cast<double>(p(i)) * static_cast<double>(Load(dy, i));
    }
    to[position] = sum;
  }
  SoftmaxValue p;
  TensorSpan dy;
  double* to;
};
// dx of one value, p (dy - sum of p dy), for RoundingStats::Round.
struct SoftmaxSlope {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const double sum = sums[static_cast<std::uint32_t>(i) / p.channels];
    return static_cast<float>(static_cast<double>(p(i)) * (static_cast<double>(Load(dy, i)) - sum));
  }
  SoftmaxValue p;
  TensorSpan dy;
  const double* sums;
};

}  // namespace ada::backend::cuda
