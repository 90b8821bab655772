// Counting values by binary exponent: magnitudes are shifted to exponents 16 at a time and tallied
// one by one, in several tables so that equal exponents in a row do not wait for each other.
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ada::backend::cpu::ADA_ISA {

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
  using Pairs = U8;
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
