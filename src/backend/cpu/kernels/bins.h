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
  bool wanted() const { return bins_ != nullptr; }
  // Where it is wanted. n: a multiple of 16; zeros that fill up vectors do no harm. smallest,
  // largest: bounds of these magnitudes, as bits, the first not of zeros; the tighter the faster.
  void Add(const float* x, int n, std::uint32_t smallest, std::uint32_t largest);
  // Of `values` values in all.
  void Finish(std::int64_t values);

 private:
  // Two values at a time, one store for both: stores are what limits such a loop.
  typedef std::uint64_t Pairs __attribute__((vector_size(4 * kLanes)));
  static constexpr int kFar = 31;

  template <bool kPlain>
  void AddPairs(const float* x, int n);  // plain: every value that is not zero has a code
  void ChooseTop(int top);
  Pairs PairsOf(U u) const;
  U TakeOthers(U u);
  U TakeSpecial(U u, unsigned lanes);
  void Fold();

  BlockBins* bins_;
  std::uint32_t mantissa_ = 0;  // of the divisor
  int top_ = 0;                 // field of the largest exponent that has a code: 0
  // By the codes of two neighbours; neighbouring pairs have a table each.
  std::uint32_t pairs_[2][1024];
};

}  // namespace ada::backend::cpu::ADA_ISA
