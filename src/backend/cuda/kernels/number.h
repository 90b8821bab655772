// Values in memory and the grids of formats, for host and device: to the bits of
// core/number_format.h.
#pragma once
#include <cstdint>

#include "core/host_device.h"
#include "core/number_format.h"
#include "core/tensor.h"

#ifdef __CUDACC__
#include <cuda_fp16.h>
#else
#include <bit>
#endif

namespace ada::backend::cuda {

inline constexpr std::uint32_t kInfinityBits = 0x7f800000u;

ADA_HOST_DEVICE inline std::uint32_t BitsOf(float x) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(x);
#else
  return __builtin_bit_cast(std::uint32_t, x);
#endif
}
ADA_HOST_DEVICE inline float OfBits(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return __builtin_bit_cast(float, bits);
#endif
}
ADA_HOST_DEVICE inline std::uint32_t MagnitudeBits(float x) { return BitsOf(x) & 0x7fffffffu; }
// The place of the highest bit that is set; bits is not 0.
ADA_HOST_DEVICE inline int TopBit(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return 31 - __clz(static_cast<int>(bits));
#else
  return 31 - __builtin_clz(bits);
#endif
}

// --- Memory ---

// A run of values: `data` points at the first.
struct TensorSpan {
  void* data = nullptr;
  Storage storage = Storage::kF32;
};
inline TensorSpan PieceOf(const Tensor& tensor) { return {tensor.data, tensor.storage}; }

ADA_HOST_DEVICE inline float FromHalf(std::uint16_t code) {
#ifdef __CUDA_ARCH__
  if ((code & 0x7c00u) != 0x7c00u) return __half2float(__ushort_as_half(code));
  const std::uint32_t mantissa = code & 0x3ffu;
  return OfBits((code & 0x8000u) << 16 | kInfinityBits | mantissa << 13 |
                (mantissa != 0 ? 0x400000u : 0u));
#else
  return DecodeFp16(code);
#endif
}
ADA_HOST_DEVICE inline std::uint16_t ToHalf(float x) {
#ifdef __CUDA_ARCH__
  if (x == x) return __half_as_ushort(__float2half_rn(x));
  const std::uint32_t bits = BitsOf(x);
  return static_cast<std::uint16_t>((bits >> 16 & 0x8000u) | 0x7e00u | (bits >> 13 & 0x3ffu));
#else
  return EncodeFp16(x);
#endif
}
ADA_HOST_DEVICE inline float FromBrain(std::uint16_t code) {
  return OfBits(static_cast<std::uint32_t>(code) << 16);
}
ADA_HOST_DEVICE inline std::uint16_t ToBrain(float x) {
  const std::uint32_t bits = BitsOf(x);
  if ((bits & 0x7fffffffu) > kInfinityBits) return static_cast<std::uint16_t>(bits >> 16 | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

ADA_HOST_DEVICE inline float Load(const TensorSpan& p, std::int64_t i) {
  if (p.storage == Storage::kF32) return static_cast<const float*>(p.data)[i];
  const std::uint16_t code = static_cast<const std::uint16_t*>(p.data)[i];
  return p.storage == Storage::kF16 ? FromHalf(code) : FromBrain(code);
}
// x is to lie on the storage's grid; else it is rounded to it.
ADA_HOST_DEVICE inline void StoreExact(const TensorSpan& p, std::int64_t i, float x) {
  if (p.storage == Storage::kF32)
    static_cast<float*>(p.data)[i] = x;
  else
    static_cast<std::uint16_t*>(p.data)[i] = p.storage == Storage::kF16 ? ToHalf(x) : ToBrain(x);
}

// Values i .. i + 3, where i is a multiple of 4 and `data` is aligned as tensors are.
struct alignas(8) FourCodes {
  std::uint16_t of[4];
};
struct alignas(16) FourFloats {
  float of[4];
};
ADA_HOST_DEVICE inline FourFloats LoadFour(const TensorSpan& p, std::int64_t i) {
  if (p.storage == Storage::kF32) return static_cast<const FourFloats*>(p.data)[i / 4];
  const FourCodes codes = static_cast<const FourCodes*>(p.data)[i / 4];
  FourFloats x;
  for (int k = 0; k < 4; ++k)
    x.of[k] = p.storage == Storage::kF16 ? FromHalf(codes.of[k]) : FromBrain(codes.of[k]);
  return x;
}
ADA_HOST_DEVICE inline void StoreFour(const TensorSpan& p, std::int64_t i, const FourFloats& x) {
  if (p.storage == Storage::kF32) {
    static_cast<FourFloats*>(p.data)[i / 4] = x;
    return;
  }
  FourCodes codes;
  for (int k = 0; k < 4; ++k)
    codes.of[k] = p.storage == Storage::kF16 ? ToHalf(x.of[k]) : ToBrain(x.of[k]);
  static_cast<FourCodes*>(p.data)[i / 4] = codes;
}

// --- Formats ---

// Constants of a format, as fp32 bits where nothing else is said.
struct NumberGrid {
  bool exact = true;  // fp32: nothing is rounded
  bool is_signed = true, e8m0 = false;
  int shift = 0;                 // mantissa bits dropped
  int mantissa_bits = 23;        // kept
  int lowest_exponent = -126;    // of the smallest normal value
  std::uint32_t keep = ~0u;      // mask of the bits that stay
  std::uint32_t half_minus = 0;  // half a spacing, minus the bit that decides ties
  std::uint32_t tie = 0;         // that bit, where the format has one
  std::uint32_t direct_min = 0;  // from here on values are rounded by `shift` alone
  float magic = 0;               // adding and taking it off rounds what lies below; 0: it does not
  std::uint32_t min_normal = 0;  // the smallest normal value
  std::uint32_t below_min = 0;   // |x| < this: below the smallest subnormal
  std::uint32_t largest = 0;     // the largest value
  std::uint32_t overflow_min = 0;              // |x| >= this overflows, inf too
  std::uint32_t over = 0;                      // and becomes this
  std::uint32_t nan_keep = ~0u, nan_flip = 0;  // without NaN, one becomes a zero of the other sign
  std::uint32_t zero_sign = 0x80000000u;       // 0: no negative zero
  double largest_value = 0;
};
NumberGrid GridOf(const NumberFormat& format);

// |x| = integer * 2^unit and the spacing 2^(unit + shift) of the grid around it. Not of 0.
struct GridPlace {
  std::uint32_t integer;
  int unit, shift;
};
ADA_HOST_DEVICE inline GridPlace PlaceOnGrid(const NumberGrid& grid, std::uint32_t magnitude) {
  const int field = static_cast<int>(magnitude >> 23);
  const std::uint32_t integer = (magnitude & 0x7fffffu) | (field == 0 ? 0u : 0x800000u);
  const int unit = (field == 0 ? 1 : field) - 150;
  const int exponent = TopBit(integer) + unit;
  const int lowest = exponent > grid.lowest_exponent ? exponent : grid.lowest_exponent;
  return {integer, unit, lowest - grid.mantissa_bits - unit};
}
// Bits of integer * 2^exponent, which must be an fp32; integer <= 2^24.
ADA_HOST_DEVICE inline std::uint32_t BitsOfScaled(std::uint32_t integer, int exponent) {
  if (integer == 0) return 0;
  const int leading = TopBit(integer);
  if (leading + exponent < -126) return integer << (exponent + 149);
  const std::uint32_t mantissa = (integer << (24 - leading) >> 1) & 0x7fffffu;
  return static_cast<std::uint32_t>(leading + exponent + 127) << 23 | mantissa;
}

// Nearest, ties to even, by integers: where `shift` alone does not round.
ADA_HOST_DEVICE inline std::uint32_t RoundSmall(const NumberGrid& grid, std::uint32_t u) {
  if (grid.magic != 0) return BitsOf((OfBits(u) + grid.magic) - grid.magic);
  if (u == 0) return 0;
  const GridPlace at = PlaceOnGrid(grid, u);
  if (at.shift <= 0) return u;
  if (at.shift > 24) return 0;  // below half of the smallest subnormal
  const std::uint32_t odd = (at.integer >> at.shift) & 1u;
  return BitsOfScaled((at.integer + (1u << (at.shift - 1)) - 1u + odd) >> at.shift,
                      at.unit + at.shift);
}

// `rounded` (on the grid, which has no end) of a magnitude u as the format keeps it.
ADA_HOST_DEVICE inline float KeepOnGrid(const NumberGrid& grid, std::uint32_t u, std::uint32_t sign,
                                        std::uint32_t rounded) {
  if (u >= grid.overflow_min) rounded = grid.over;
  if (!grid.is_signed && rounded < grid.min_normal) rounded = grid.min_normal;
  if (rounded == 0) sign &= grid.zero_sign;
  return OfBits(sign | rounded);
}

// As ada::RoundTo.
ADA_HOST_DEVICE inline float RoundToGrid(const NumberGrid& grid, float x) {
  if (grid.exact) return x;
  const std::uint32_t bits = BitsOf(x), u = bits & 0x7fffffffu, sign = bits ^ u;
  if (u > kInfinityBits) return OfBits((u & grid.nan_keep) | (sign ^ grid.nan_flip));
  if (!grid.is_signed) {
    if (sign != 0 || u == 0) return OfBits(0x7fc00000u);
    if (grid.e8m0 && u > 0x400000u && u < 0x800000u) return OfBits(0x800000u);
  }
  const std::uint32_t direct = (u + grid.half_minus + ((u >> grid.shift) & grid.tie)) & grid.keep;
  return KeepOnGrid(grid, u, sign, u >= grid.direct_min ? direct : RoundSmall(grid, u));
}

// As ada::RoundStochastically.
ADA_HOST_DEVICE inline float RoundRandomlyToGrid(const NumberGrid& grid, float x,
                                                 std::uint32_t random) {
  const std::uint32_t bits = BitsOf(x), u = bits & 0x7fffffffu, sign = bits ^ u;
  if (u >= grid.largest || u == 0 || (!grid.is_signed && sign != 0)) return RoundToGrid(grid, x);
  if (u >= grid.direct_min) {
    if (grid.shift == 0) return x;
    // The place between two neighbours in units of 2^-32 of their distance.
    const std::uint32_t up = random < u << (32 - grid.shift) ? 1 : 0;
    return KeepOnGrid(grid, u, sign, (u & grid.keep) + (up << grid.shift));
  }
  const GridPlace at = PlaceOnGrid(grid, u);
  if (at.shift <= 0) return x;
  const std::uint64_t shifted = std::uint64_t{at.integer} << 32;
  const std::uint64_t place = at.shift < 64 ? shifted >> at.shift : 0;
  const std::uint32_t up = random < static_cast<std::uint32_t>(place) ? 1 : 0;
  return KeepOnGrid(grid, u, sign,
                    BitsOfScaled(static_cast<std::uint32_t>(place >> 32) + up, at.unit + at.shift));
}

}  // namespace ada::backend::cuda
