// Counting values by binary exponent: magnitudes are shifted to exponents 16 at a time and tallied
// one by one, in several tables so that equal exponents in a row do not wait for each other.
#pragma once
#include <immintrin.h>

#include "backend/cpu/kernels/simd.h"

namespace ada::backend::cpu::ADA_ISA {

// One bit for each lane of a comparison's result.
ADA_INLINE unsigned LaneBits(I v) {
#if defined(__AVX512F__)
  return _mm512_test_epi32_mask(reinterpret_cast<__m512i>(v), reinterpret_cast<__m512i>(v));
#else
  union {
    I lanes;
    __m128 parts[4];
  } u{v};
  unsigned bits = 0;
  for (int k = 0; k < 4; ++k) bits |= static_cast<unsigned>(_mm_movemask_ps(u.parts[k])) << (4 * k);
  return bits;
#endif
}

// Fills the rounding's BlockBins, where it has any.
class BinTally {
 public:
  explicit BinTally(const Rounding& rounding);
  // n: a multiple of 16; zeros that fill up vectors do no harm.
  void Add(const float* x, int n);
  // Of `values` values in all.
  void Finish(std::int64_t values);

 private:
  U TakeSpecial(U u, unsigned lanes);

  BlockBins* bins_;
  std::uint32_t mantissa_ = 0;  // of the divisor
  // Shifted magnitudes are fields 0..254; those of zeros may be 511.
  std::uint32_t tables_[4][512];
};

}  // namespace ada::backend::cpu::ADA_ISA
