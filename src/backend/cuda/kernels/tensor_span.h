// Values of tensors in memory, for host and device: one by one, by four, and eight of 16 bits at a
// time, with the hardware's conversions.
#pragma once
#include <cstdint>
#include <type_traits>

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
// compiled use LoadAs.
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
  ADA_UNROLL
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
  ADA_UNROLL
  for (int k = 0; k < 4; ++k)
    codes.of[k] = p.storage == Storage::kF16 ? Fp16CodeOf(x.of[k]) : Bf16CodeOf(x.of[k]);
  static_cast<Vec4Codes*>(p.data)[i / 4] = codes;
}

// --- Eight values ---

// How values lie, known when the kernel is compiled; kAny: it is not.
enum class StorageType : std::uint8_t { kF32, kF16, kBF16, kAny };
ADA_HOST_DEVICE inline StorageType StorageTypeOf(Storage storage) {
  return storage == Storage::kF32   ? StorageType::kF32
         : storage == Storage::kF16 ? StorageType::kF16
                                    : StorageType::kBF16;
}
// The branch on the storage is taken when the kernel is compiled.
template <StorageType kStorageType>
ADA_HOST_DEVICE float LoadAs(const TensorSpan& p, std::int64_t i) {
  if constexpr (kStorageType == StorageType::kAny) return Load(p, i);
  if constexpr (kStorageType == StorageType::kF32) return static_cast<const float*>(p.data)[i];
  const auto* codes = static_cast<const std::uint16_t*>(p.data);
  return kStorageType == StorageType::kF16 ? OfFp16(codes[i]) : OfBf16(codes[i]);
}

// kAny where they differ.
ADA_HOST_DEVICE inline StorageType CommonStorageType(const TensorSpan& a, const TensorSpan& b) {
  return a.storage == b.storage ? StorageTypeOf(a.storage) : StorageType::kAny;
}
// body(std::integral_constant<StorageType, ...>()) for this storage. The branch is taken once: with
// one at every load, the loads of a loop would wait for each other.
template <class Body>
ADA_HOST_DEVICE inline auto WithStorageType(StorageType type, Body&& body) {
  using enum StorageType;
  switch (type) {
    case kF32:
      return body(std::integral_constant<StorageType, kF32>());
    case kF16:
      return body(std::integral_constant<StorageType, kF16>());
    case kBF16:
      return body(std::integral_constant<StorageType, kBF16>());
    default:
      return body(std::integral_constant<StorageType, kAny>());
  }
}

// Values 2k and 2k + 1 are the low and the high half of pair k.
// Two codes in a word, as the device's packed instructions take them.
struct alignas(16) Vec8Codes {
  std::uint32_t pair[4];
};
struct Vec8 {
  float of[8];
};

inline bool IsOnSixteen(const void* at) { return reinterpret_cast<std::uintptr_t>(at) % 16 == 0; }
// Whether eights of it can be loaded and stored: 16 bits a value, on a boundary of 16 bytes.
inline bool HasVec8(const TensorSpan& p) {
  return p.storage != Storage::kF32 && IsOnSixteen(p.data);
}
// Values i .. i + 7, where 8 divides i.
ADA_HOST_DEVICE inline Vec8Codes LoadVec8(const TensorSpan& p, std::int64_t i) {
  return static_cast<const Vec8Codes*>(p.data)[i / 8];
}
ADA_HOST_DEVICE inline void StoreVec8(const TensorSpan& p, std::int64_t i, const Vec8Codes& codes) {
  static_cast<Vec8Codes*>(p.data)[i / 8] = codes;
}

// A NaN stays one; its payload need not.
template <StorageType kStorageType>
ADA_HOST_DEVICE inline float WidenedCode(std::uint16_t code) {
  static_assert(kStorageType == StorageType::kF16 || kStorageType == StorageType::kBF16);
  if constexpr (kStorageType == StorageType::kBF16) return OfBf16(code);
#ifdef __CUDA_ARCH__
  float x = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(code));
  return x;
#else
  return OfFp16(code);
#endif
}
// As LoadVec4.
template <StorageType kStorageType>
ADA_HOST_DEVICE inline Vec4 LoadVec4As(const TensorSpan& p, std::int64_t i) {
  const Vec4Codes codes = static_cast<const Vec4Codes*>(p.data)[i / 4];
  Vec4 x;
  ADA_UNROLL
  for (int k = 0; k < 4; ++k) x.of[k] = WidenedCode<kStorageType>(codes.of[k]);
  return x;
}
struct Vec2 {
  float of[2];
};
template <StorageType kStorageType>
ADA_HOST_DEVICE inline Vec2 WidenedPair(std::uint32_t pair) {
  if constexpr (kStorageType == StorageType::kBF16)
    return {{OfBits(pair << 16), OfBits(pair & 0xffff0000u)}};
  return {{WidenedCode<kStorageType>(static_cast<std::uint16_t>(pair)),
           WidenedCode<kStorageType>(static_cast<std::uint16_t>(pair >> 16))}};
}
template <StorageType kStorageType>
ADA_HOST_DEVICE inline Vec8 Widened(const Vec8Codes& codes) {
  Vec8 x;
  for (int k = 0; k < 4; ++k) {
    const Vec2 two = WidenedPair<kStorageType>(codes.pair[k]);
    x.of[2 * k] = two.of[0], x.of[2 * k + 1] = two.of[1];
  }
  return x;
}

// Two results of arithmetic, rounded to nearest: the codes of Fp16CodeOf or
// Bf16CodeOf. The one NaN that a device's arithmetic has is 0x7fff in both.
template <StorageType kStorageType>
ADA_HOST_DEVICE inline std::uint32_t PairOf(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  std::uint32_t pair = 0;
  if constexpr (kStorageType == StorageType::kF16)
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  else
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
#else
  const auto code = [](float x) {
    return std::uint32_t{kStorageType == StorageType::kF16 ? Fp16CodeOf(x) : Bf16CodeOf(x)};
  };
  return code(low) | code(high) << 16;
#endif
}
template <StorageType kStorageType>
ADA_HOST_DEVICE inline Vec8Codes Narrowed(const Vec8& x) {
  static_assert(kStorageType == StorageType::kF16 || kStorageType == StorageType::kBF16);
  Vec8Codes codes;
  for (int k = 0; k < 4; ++k) codes.pair[k] = PairOf<kStorageType>(x.of[2 * k], x.of[2 * k + 1]);
  return codes;
}

// The larger ones of two pairs of codes without signs, half by half: these are in the order of
// numbers, NaN above all.
ADA_HOST_DEVICE inline std::uint32_t LargerHalves(std::uint32_t a, std::uint32_t b) {
#ifdef __CUDA_ARCH__
  return __vmaxu2(a, b);
#else
  const std::uint32_t low_a = a & 0xffffu, low_b = b & 0xffffu;
  const std::uint32_t high_a = a >> 16, high_b = b >> 16;
  return (low_a > low_b ? low_a : low_b) | (high_a > high_b ? high_a : high_b) << 16;
#endif
}
// Magnitudes of a pair, or of eight values, joined to those `so_far`, which begin with 0.
ADA_HOST_DEVICE inline std::uint32_t JoinMagnitudes(std::uint32_t so_far, const Vec8Codes& codes) {
  for (const std::uint32_t pair : codes.pair) so_far = LargerHalves(so_far, pair & 0x7fff7fffu);
  return so_far;
}
// The largest of them, as MagnitudeBits has it.
template <StorageType kStorageType>
ADA_HOST_DEVICE inline std::uint32_t LargestBits(std::uint32_t magnitudes) {
  static_assert(kStorageType == StorageType::kF16 || kStorageType == StorageType::kBF16);
  const auto code = static_cast<std::uint16_t>(LargerHalves(magnitudes, magnitudes >> 16));
  return BitsOf(kStorageType == StorageType::kF16 ? OfFp16(code) : OfBf16(code)) & 0x7fffffffu;
}

// Eight entries of an array of channels; 8 divides c.
ADA_HOST_DEVICE inline Vec8 Vec8Channels(const float* of, std::uint32_t c) {
  const auto* vec4 = reinterpret_cast<const Vec4*>(of + c);
  const Vec4 low = vec4[0], high = vec4[1];
  Vec8 x;
  for (int k = 0; k < 4; ++k) x.of[k] = low.of[k], x.of[4 + k] = high.of[k];
  return x;
}

}  // namespace ada::backend::cuda
