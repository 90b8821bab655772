// Values of outputs that depend on few values of the inputs, one by one and, where that is quicker,
// by four (round_values.h).
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

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

}  // namespace ada::backend::cuda
