// Sums of products in registers: a block of rows times 16 columns each, or of rows times twice 16.
// One source for the widths: F is one register of 16 lanes or two of 8.
#pragma once
#include "backend/cpu/kernels/modes.h"
#include "backend/cpu/tile_kernels.h"

namespace ada::backend::cpu::ADA_ISA {

// Rows whose sums, with a row of each factor, fit in the registers: for one block of 16 columns and
// for two. kRowsOfTwo = 0: two do not.
#ifdef __AVX512F__
inline constexpr int kRowsOfOne = 16, kRowsOfTwo = 8;
#else
inline constexpr int kRowsOfOne = 6, kRowsOfTwo = 0;
#endif

ADA_INLINE F MultiplyAdd(F a, F b, F sum) {
#ifdef __AVX512F__
  return (F)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)sum);
#else
  return {(Floats)_mm256_fmadd_ps((__m256)a.low, (__m256)b.low, (__m256)sum.low),
          (Floats)_mm256_fmadd_ps((__m256)a.high, (__m256)b.high, (__m256)sum.high)};
#endif
}
ADA_INLINE F Broadcast(const float* x) {
#ifdef __AVX512F__
  return (F)_mm512_set1_ps(*x);
#else
  const auto v = (Floats)_mm256_broadcast_ss(x);
  return {v, v};
#endif
}

template <int kRows, int kColumns>
struct Sums {
  F of[kColumns][kRows];

  ADA_INLINE void Zero() {
    for (auto& column : of)
      for (F& sum : column) sum = F{};
  }
  // Row r: x[r * step] times the rows of both factors' columns.
  ADA_INLINE void Add(const float* x, std::int64_t step, const F (&y)[kColumns]) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const F factor = Broadcast(x + r * step);
#pragma GCC unroll 2
      for (int c = 0; c < kColumns; ++c) of[c][r] = MultiplyAdd(y[c], factor, of[c][r]);
    }
  }
};

// The kernels; tile_convolution.h and direct_weight_gradient.h say what they do.
void PackRecordsOfFloats(const PackRecordsArgs&);
void PackWeightsOfFloats(const PackWeightsArgs&);
void ConvolveFloats(const TileConvolutionArgs&);
void DirectGradient(const DirectGradientArgs&);

}  // namespace ada::backend::cpu::ADA_ISA
