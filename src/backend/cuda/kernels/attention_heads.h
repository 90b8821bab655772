// Tensors of attention by head: queries, keys and values as one matrix per head, and results of
// these matrices in the tensors' layout.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// A tensor's [images, positions, heads * width], some of `channels` channels from `first` on; by
// head: [images, heads, positions, width].
// Numbers of 32 bits, which a device divides faster; a tensor of attention has fewer values than
// 2^32.
struct HeadShape {
  std::uint32_t heads, positions, width;
  std::uint32_t channels, first;  // of the tensor

  // Where value i of [images, heads, positions, width] lies in the tensor.
  ADA_HOST_DEVICE std::int64_t InTensor(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t row = at / width, value = at - row * width;
    const std::uint32_t head = row / positions, position = row - head * positions;
    const std::uint32_t image = head / heads;
    return (std::int64_t{image} * positions + position) * channels + first +
           (head - image * heads) * width + value;
  }
  // The other way, of a tensor that holds nothing else.
  ADA_HOST_DEVICE std::int64_t ByHead(std::int64_t i) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t row = at / width, value = at - row * width;
    const std::uint32_t place = row / heads, head = row - place * heads;
    const std::uint32_t image = place / positions;
    return ((std::int64_t{image} * heads + head) * positions + (place - image * positions)) *
               width +
           value;
  }
  // Whether values i .. i + 3, where 4 divides i, are adjacent in both layouts.
  bool vec4() const { return width % 4 == 0 && first % 4 == 0 && channels % 4 == 0; }
};

// Values 4 i .. 4 i + 3 of `n`, by head, in the storage of `to`.
// Body of ForEach over a quarter of the values, rounded up. Values stay what they are.
struct PackHeads {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (vec4) return StoreVec4(to, 4 * i, LoadVec4(from, shape.InTensor(4 * i)));
    for (std::int64_t k = 4 * i; k < 4 * i + 4 && k < n; ++k)
      StoreExact(to, k, Load(from, shape.InTensor(k)));
  }
  TensorSpan from, to;
  HeadShape shape;
  std::int64_t n;
  bool vec4;
};

// A tensor's value i of sums by head, times `factor`, then alpha (null: 1).
// A Value of RoundingStats::Round: what the products gave, brought from heads to the tensor's order
// while it is rounded.
struct HeadsValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Of(sums[shape.ByHead(i)]); }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 v;
    if (vec4) {
      v = reinterpret_cast<const Vec4*>(sums)[shape.ByHead(i) / 4];
      for (float& one : v.of) one = Of(one);
      return v;
    }
    for (int k = 0; k < 4; ++k) v.of[k] = (*this)(i + k);
    return v;
  }
  ADA_HOST_DEVICE float Of(float sum) const {
    const float value = sum * factor;
    return alpha == nullptr ? value : value * *alpha;
  }
  const float* sums;
  HeadShape shape;
  float factor;
  const float* alpha;
  bool vec4;
};

}  // namespace ada::backend::cuda
