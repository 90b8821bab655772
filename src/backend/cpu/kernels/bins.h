// Counting values by binary exponent. A value becomes a word with one bit, which stands for its
// exponent, and adders sum words up lane by lane, bit by bit: place p of 32 sums at a time is one
// word. (Positional population counts by carry-save adders: Klarqvist, Mula, Lemire, "Efficient
// computation of positional population counts using SIMD instructions", 2019.)
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ada::backend::cpu::ADA_ISA {

// Fills the rounding's BlockBins, where it has any.
// One block's tally: Add for each filling of the caller's buffer, then Finish. Does nothing where
// no bins are wanted.
class BinTally {
 public:
  static constexpr int kRun = 16 * kLanes;  // values that are looked at together

  explicit BinTally(const Rounding& rounding);
  bool wanted() const { return bins_ != nullptr; }
  // Where it is wanted. n: a multiple of 16; zeros that fill up vectors do no harm. Bits of
  // magnitudes: the smallest of each kRun values (of what is left at the end), zeros left out, and
  // the largest of all.
  void Add(const float* x, int n, const std::uint32_t* smallest, std::uint32_t largest);
  // Ends a tally of `values` values in all.
  void Finish(std::int64_t values);

 private:
  // 32 exponents have a bit at a time; twelve places count up to 4095 words in each lane.
  // Those of all sixteen lanes take four places more.
  static constexpr int kBits = 32, kPlaces = 12, kPlacesOfAll = kPlaces + 4;

  // (u - offset()) >> 23: the bit of a magnitude u. The divisor's mantissa takes one off the
  // exponent where that is due.
  std::uint32_t offset() const { return (static_cast<std::uint32_t>(lowest_) << 23) + mantissa_; }
  void ChooseLowest(std::uint32_t largest);
  void TakeOthers(float* values);
  void TakeOther(std::uint32_t u);
  void AddWords(const float* values);
  void Empty();

  BlockBins* bins_;
  std::uint32_t mantissa_ = 0;  // of the divisor
  int lowest_ = 1;              // field of the exponent that bit 0 stands for, never subnormals'
  int words_ = 0;               // summed up in every lane
  alignas(64) std::uint32_t sums_[kPlacesOfAll][kLanes] = {};
};

}  // namespace ada::backend::cpu::ADA_ISA
