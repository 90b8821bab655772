// Splits values into sums of bf16 values, for a matrix unit that multiplies bf16 and adds in fp32.
// A value of at most 8 significant bits is one part; one of at most 16 (fp16: 11) is the sum of
// two: its upper 8 bits, and the rest. Both are exact where no part lies below 2^-126, so every
// product of parts is too (24 bits hold 8 x 8), and the product of two values is the sum of the
// products of their parts.
//
//      fp16   s eeeee mmmmmmm mmm
//      high   s eeeeeeee mmmmmmm   low   s eeeeeeee mmm0000 (normalized anew)
//
// Not finite: high is inf or NaN, low NaN; a product with it is not finite either.
#pragma once
#include <immintrin.h>

#include <cstddef>

#include "backend/cpu/kernels/modes.h"
#include "backend/cpu/kernels/simd.h"
#include "backend/cpu/matmul/matmul_kernels.h"

namespace ada::backend::cpu::ADA_ISA {

// 32 bf16 values in the order of the values they are parts of.
struct Parts32 {
  __m512i high, low;
};

// The sign, exponent and upper seven bits of the mantissa: truncated, not rounded, so that the rest
// has the same sign.
ADA_INLINE F HighPart(F x) { return (F)_mm512_and_si512((__m512i)x, _mm512_set1_epi32(~0xffff)); }
// 32 values that bf16 holds as such: 0..15 in `first`, 16..31 in `second`.
ADA_INLINE __m512i Bf16Of(F first, F second) {
  return (__m512i)_mm512_cvtne2ps_pbh((__m512)second, (__m512)first);
}
ADA_INLINE __m512i HighParts(F first, F second) {
  return Bf16Of(HighPart(first), HighPart(second));
}
ADA_INLINE Parts32 SplitParts(F first, F second) {
  const F a = HighPart(first), b = HighPart(second);
  return {Bf16Of(a, b), Bf16Of(first - a, second - b)};
}

// The eight tile registers, each of 16 rows of 64 bytes.
struct alignas(64) AmxTileShapes {
  std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
  std::uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  std::uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
// Tiles are configured as long as this lives; a kernel makes one before its first tile.
class AmxSession {
 public:
  ADA_INLINE AmxSession() {
    const AmxTileShapes shapes;
    asm volatile("ldtilecfg %0" : : "m"(shapes));  // GCC 12's own tells it of 8 bytes only
  }
  ADA_INLINE ~AmxSession() { _tile_release(); }
  AmxSession(const AmxSession&) = delete;
};

// The AMX kernels; packed_convolution.h and partial_gradients.h say what they do.
void PackInput(const PackInputArgs&);
void PackWeights(const PackWeightsArgs&);
void Convolve(const PackedConvolutionArgs&);
void WeightGradient(const WeightGradientArgs&);

// The first lanes of a vector of values, from any storage; the others are 0. Lanes that are not
// wanted are not touched in memory either.
template <Storage kStorage>
ADA_INLINE F LoadLanes(const void* values, std::int64_t i, __mmask16 lanes) {
  if constexpr (kStorage == Storage::kF16) {
    const auto* p = static_cast<const std::uint16_t*>(values) + i;
    return (F)_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(lanes, p));
  } else if constexpr (kStorage == Storage::kBF16) {
    const auto* p = static_cast<const std::uint16_t*>(values) + i;
    return (F)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(lanes, p)), 16);
  } else {
    return (F)_mm512_maskz_loadu_ps(lanes, static_cast<const float*>(values) + i);
  }
}
// All 16 of them.
template <Storage kStorage>
ADA_INLINE F LoadWhole(const void* values, std::int64_t i) {
  if constexpr (kStorage == Storage::kF16)
    return ModeF16::Load({const_cast<void*>(values), kStorage}, i);
  else if constexpr (kStorage == Storage::kBF16)
    return ModeBF16::Load({const_cast<void*>(values), kStorage}, i);
  else
    return ModeF32::Load({const_cast<void*>(values), kStorage}, i);
}
ADA_INLINE __mmask16 Lanes(std::int64_t n) {
  return n >= 16 ? static_cast<__mmask16>(0xffff) : static_cast<__mmask16>((1u << n) - 1);
}

template <int kTile>
ADA_INLINE void ZeroTile() {
  asm volatile("tilezero %%tmm%c0" : : "i"(kTile));
}
// 16 rows of 64 bytes, one after the other, from a multiple of 64 on.
template <int kTile>
ADA_INLINE void LoadTile(const void* from) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2"
               :
               : "r"(from), "r"(std::ptrdiff_t{64}), "i"(kTile)
               : "memory");
}
// 16 rows of 64 bytes, `row_bytes` apart. The compiler may move it before stores to memory that
// precede it: for what was written before the kernel began.
template <int kTile>
ADA_INLINE void LoadRows(const void* from, std::ptrdiff_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(row_bytes), "i"(kTile));
}
template <int kTile>
ADA_INLINE void StoreTile(void* to) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)"
               :
               : "r"(to), "r"(std::ptrdiff_t{64}), "i"(kTile)
               : "memory");
}
// kSum += kA * kB, of bf16: row r of A times pairs of rows of B.
template <int kSum, int kA, int kB>
ADA_INLINE void MultiplyTiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(kSum), "i"(kA), "i"(kB));
}

}  // namespace ada::backend::cpu::ADA_ISA
