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

#include "backend/cpu/kernels/modes.h"
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

// The AMX kernels; packed_convolution.h and amx_weight_gradient.h say what they do.
void PackInput(const PackInputArgs&);
void PackWeights(const PackWeightsArgs&);
void Convolve(const PackedConvolutionArgs&);
void WeightGradient(const WeightGradientArgs&);

}  // namespace ada::backend::cpu::ADA_ISA
