// Counting a block's values in two steps: the rounding loop keeps them in a buffer that fits the
// first-level cache; from there they are counted in short loops, whose counts stay in registers.
#pragma once
#include "backend/cpu/kernels/count_buffer.h"
#include "backend/cpu/kernels/grid.h"

namespace ada::backend::cpu::ADA_ISA {

// Made for one block. The rounding loop writes into kept() from Begin() on, adds to a copy of
// lanes(), and passes the position that it reached and the lanes to End; a full buffer is counted
// at once. The object is large (three buffers of 20 KB) and is allocated in the stack frame of a
// kernel.
class CountTally {
 public:
  // apart: values are kept three times, else as x only and rounded to nearest.
  CountTally(const Rounder& rounder, bool apart);

  ADA_INLINE CountBuffer& kept() { return kept_; }
  // Where the next values go, and that they have been put there. Vectors of fewer than 16 values
  // are filled up with zeros.
  ADA_INLINE int Begin() const { return end_; }
  ADA_INLINE const BufferSums::Lanes& lanes() const { return sums_.lanes; }
  ADA_INLINE void End(int end, const BufferSums::Lanes& lanes) {
    end_ = end, sums_.lanes = lanes;
    if (end > CountBuffer::kWait * kLanes) Count();
  }
  // Writes the counts of `values` values in all, and their bins.
  void Finish(std::int64_t values, BlockStats& stats);

 private:
  static constexpr int kRun = CountBuffer::kRun;
  void Count();
  void CountSmall(const BufferExtremes& extremes);
  void CountSmallApart(const BufferExtremes& extremes);
  void CountLarge(const BufferExtremes& extremes);

  const Rounder& rounder_;
  const bool apart_;
  // For values stored only once: bits of the smallest magnitudes that do not become zero, and that
  // become neither zero nor subnormal.
  std::uint32_t zero_end_ = 0, subnormal_end_ = 0;
  std::uint32_t edge_ = kInfinityBits;  // the largest that does not lie above the edge
  BufferSums sums_;
  std::uint32_t min_ = 0x7fffffffu, max_ = 0;
  std::int64_t kept_count_ = 0, zeros_ = 0, zeros_after_ = 0;   // with zeros that filled up vectors
  std::int64_t below_min_ = 0, underflow_ = 0, subnormal_ = 0;  // none of these is a zero
  std::int64_t beyond_ = 0, not_finite_ = 0, nan_ = 0, above_edge_ = 0;
  int end_ = 0;
  BinTally bins_;
  CountBuffer kept_;
};

}  // namespace ada::backend::cpu::ADA_ISA
