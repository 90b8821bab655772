// Blocks of fp32 values, transposed.
#pragma once
#include "backend/cpu/matmul/kernels/direct/sums.h"

namespace ada::backend::cpu::ADA_ISA {

// to[k * to_step + r] = from[r * from_step + k], for r and k below 8.
ADA_INLINE void Transpose8(const float* from, std::int64_t from_step, float* to,
                           std::int64_t to_step) {
  __m256 rows[8], pairs[8], quads[8];
#pragma GCC unroll 8
  for (int r = 0; r < 8; ++r) rows[r] = _mm256_loadu_ps(from + r * from_step);
#pragma GCC unroll 4
  for (int r = 0; r < 8; r += 2) {
    pairs[r] = _mm256_unpacklo_ps(rows[r], rows[r + 1]);
    pairs[r + 1] = _mm256_unpackhi_ps(rows[r], rows[r + 1]);
  }
  // Values k and k + 4 of four rows.
#pragma GCC unroll 2
  for (int r = 0; r < 8; r += 4) {
    quads[r] = _mm256_shuffle_ps(pairs[r], pairs[r + 2], 0x44);
    quads[r + 1] = _mm256_shuffle_ps(pairs[r], pairs[r + 2], 0xee);
    quads[r + 2] = _mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0x44);
    quads[r + 3] = _mm256_shuffle_ps(pairs[r + 1], pairs[r + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    _mm256_storeu_ps(to + k * to_step, _mm256_permute2f128_ps(quads[k], quads[k + 4], 0x20));
    _mm256_storeu_ps(to + (k + 4) * to_step, _mm256_permute2f128_ps(quads[k], quads[k + 4], 0x31));
  }
}

// The same, for r and k below 16.
ADA_INLINE void Transpose16(const float* from, std::int64_t from_step, float* to,
                            std::int64_t to_step) {
#pragma GCC unroll 2
  for (int r = 0; r < 16; r += 8)
#pragma GCC unroll 2
    for (int k = 0; k < 16; k += 8)
      Transpose8(from + r * from_step + k, from_step, to + k * to_step + r, to_step);
}

}  // namespace ada::backend::cpu::ADA_ISA
