// Values of outputs that depend on few values of the inputs, one by one and, where that is quicker,
// by four (round_values.h).
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "core/host_device.h"
#include "core/random.h"

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

// x / (1 - rate) where the value's random word says so, else 0.
struct DropoutValue {
  ADA_HOST_DEVICE float Of(float x, std::uint32_t word) const {
    return UniformFloat(word) >= rate ? x * factor : 0.0f;
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return Of(Load(x, i), RandomWord(pass->seed ^ layer, pass->draw, before + i));
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = LoadVec4(x, i);
    const Vec4Words words = RandomWords(pass->seed ^ layer, pass->draw, before + i);
    for (unsigned k = 0; k < 4; ++k) v.of[k] = Of(v.of[k], words.of[k]);
    return v;
  }

  TensorSpan x;
  const PassValues* pass;
  std::uint64_t layer;
  float rate, factor;
  std::int64_t before;  // values of other processes, before these
};

// A cast's gradient: alpha * dy; with `steps`, rounded to dy's format before it goes on.
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

// --- Moving values: none is rounded. Tensors have fewer than 2^32 values
// (rounding/rounding_stats.cpp).
// ---

struct ImageShape {
  int h, w, c;
  ADA_HOST_DEVICE std::uint32_t values() const { return static_cast<std::uint32_t>(h * w * c); }
};
inline ImageShape ImageOf(const Shape& shape) {
  return {static_cast<int>(shape.h), static_cast<int>(shape.w), static_cast<int>(shape.c)};
}
struct ImageIndex {
  std::int64_t image;
  int h, w, c;
};
ADA_HOST_DEVICE inline ImageIndex IndexOf(const ImageShape& shape, std::int64_t i) {
  const auto at = static_cast<std::uint32_t>(i);
  const std::uint32_t pixels = at / static_cast<std::uint32_t>(shape.c);
  const std::uint32_t rows = pixels / static_cast<std::uint32_t>(shape.w);
  const std::uint32_t image = rows / static_cast<std::uint32_t>(shape.h);
  const auto rest = [](std::uint32_t all, std::uint32_t whole, int size) {
    return static_cast<int>(all - whole * static_cast<std::uint32_t>(size));
  };
  return {image, rest(rows, image, shape.h), rest(pixels, rows, shape.w),
          rest(at, pixels, shape.c)};
}
ADA_HOST_DEVICE inline std::int64_t OffsetOf(const ImageShape& shape, const ImageIndex& at) {
  return at.image * shape.values() + (std::int64_t{at.h} * shape.w + at.w) * shape.c + at.c;
}

// Shortcut A: y is every stride-th pixel of x between `pad` channels of zeros.
struct ShortcutShape {
  ImageShape x, y;
  int stride_h, stride_w, pad;
  // Whether four values lie in one pixel, or beside it, together.
  bool vec4() const { return x.c % 4 == 0 && y.c % 4 == 0 && pad % 4 == 0; }
  // Where value i of y comes from, or value i of x goes to; negative: zero, nowhere.
  ADA_HOST_DEVICE std::int64_t Source(std::int64_t i) const {
    ImageIndex at = IndexOf(y, i);
    at.h *= stride_h, at.w *= stride_w, at.c -= pad;
    return at.c < 0 || at.c >= x.c ? -1 : OffsetOf(x, at);
  }
  ADA_HOST_DEVICE std::int64_t Target(std::int64_t i) const {
    ImageIndex at = IndexOf(x, i);
    if (at.h % stride_h != 0 || at.w % stride_w != 0) return -1;
    at.h /= stride_h, at.w /= stride_w, at.c += pad;
    return at.h >= y.h || at.w >= y.w ? -1 : OffsetOf(y, at);
  }
};
// y, or with kGradient dx.
template <bool kGradient>
struct ShortcutValue {
  ADA_HOST_DEVICE std::int64_t Where(std::int64_t i) const {
    return kGradient ? shape.Target(i) : shape.Source(i);
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const std::int64_t at = Where(i);
    return at < 0 ? 0.0f : Load(from, at);
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v = {};
    if (vec4) {
      const std::int64_t at = Where(i);
      return at < 0 ? v : LoadVec4(from, at);
    }
    for (int k = 0; k < 4; ++k) v.of[k] = (*this)(i + k);
    return v;
  }

  TensorSpan from;
  ShortcutShape shape;
  bool vec4;
};

// Several tensors' runs of values (a pixel's channels, an image), one tensor after the other.
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
// `part` channels of dy from `first` on.
struct SliceValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i), each = static_cast<std::uint32_t>(part);
    const std::uint32_t pixel = at / each;
    return Load(dy, std::int64_t{pixel} * channels + first + (at - pixel * each));
  }

  TensorSpan dy;
  int channels, first, part;
};
// The other way: such a part among `channels`, zeros beside it.
struct PlacedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i), each = static_cast<std::uint32_t>(channels);
    const std::uint32_t pixel = at / each;
    const int channel = static_cast<int>(at - pixel * each) - first;
    return channel < 0 || channel >= part ? 0.0f : Load(dy, std::int64_t{pixel} * part + channel);
  }

  TensorSpan dy;
  int channels, first, part;
};

// Image by image the transpose of [rows, columns].
struct TransposedValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    const auto each = static_cast<std::uint32_t>(rows * columns);
    const std::uint32_t image = static_cast<std::uint32_t>(i) / each;
    const std::uint32_t rest = static_cast<std::uint32_t>(i) - image * each;
    const std::uint32_t column = rest / static_cast<std::uint32_t>(rows);
    const std::uint32_t row = rest - column * static_cast<std::uint32_t>(rows);
    return Load(from, std::int64_t{image} * each + std::int64_t{row} * columns + column);
  }

  TensorSpan from;
  int rows, columns;
};

}  // namespace ada::backend::cuda
