// Values of tensors in memory, for host and device.
#pragma once
#include <cstdint>

#include "number/host_device.h"
#include "number/number_grid.h"
#include "number/tensor.h"

namespace ada::backend::cuda {

// A run of values: `data` points at the first.
struct TensorSpan {
  void* data = nullptr;
  Storage storage = Storage::kF32;
};
inline TensorSpan SpanOf(const Tensor& tensor) { return {tensor.data, tensor.storage}; }

// The channel of value i. Tensors have fewer than 2^32 values, and divisions of 64 bits are slow on
// a device.
ADA_HOST_DEVICE inline std::uint32_t ChannelOf(std::int64_t i, std::uint32_t channels) {
  return static_cast<std::uint32_t>(i) % channels;
}

// The branch is the same for all threads of a warp. Kernels that know the storage when they are
// compiled use LoadAs (vec8.h).
ADA_HOST_DEVICE inline float Load(const TensorSpan& p, std::int64_t i) {
  if (p.storage == Storage::kF32) return static_cast<const float*>(p.data)[i];
  const std::uint16_t code = static_cast<const std::uint16_t*>(p.data)[i];
  return p.storage == Storage::kF16 ? OfFp16(code) : OfBf16(code);
}
// x is to lie on the storage's grid; else it is rounded to it.
ADA_HOST_DEVICE inline void StoreExact(const TensorSpan& p, std::int64_t i, float x) {
  if (p.storage == Storage::kF32)
    static_cast<float*>(p.data)[i] = x;
  else
    static_cast<std::uint16_t*>(p.data)[i] =
        p.storage == Storage::kF16 ? Fp16CodeOf(x) : Bf16CodeOf(x);
}

// Values i .. i + 3, where i is a multiple of 4 and `data` is aligned as tensors are.
// One load or store of 8 or 16 bytes.
struct alignas(8) Vec4Codes {
  std::uint16_t of[4];
};
struct alignas(16) Vec4 {
  float of[4];
};
ADA_HOST_DEVICE inline Vec4 LoadVec4(const TensorSpan& p, std::int64_t i) {
  if (p.storage == Storage::kF32) return static_cast<const Vec4*>(p.data)[i / 4];
  const Vec4Codes codes = static_cast<const Vec4Codes*>(p.data)[i / 4];
  Vec4 x;
  for (int k = 0; k < 4; ++k)
    x.of[k] = p.storage == Storage::kF16 ? OfFp16(codes.of[k]) : OfBf16(codes.of[k]);
  return x;
}
ADA_HOST_DEVICE inline void StoreVec4(const TensorSpan& p, std::int64_t i, const Vec4& x) {
  if (p.storage == Storage::kF32) {
    static_cast<Vec4*>(p.data)[i / 4] = x;
    return;
  }
  Vec4Codes codes;
  for (int k = 0; k < 4; ++k)
    codes.of[k] = p.storage == Storage::kF16 ? Fp16CodeOf(x.of[k]) : Bf16CodeOf(x.of[k]);
  static_cast<Vec4Codes*>(p.data)[i / 4] = codes;
}

}  // namespace ada::backend::cuda
