// The loops that count kept values. Vectors here are as wide as the registers: a column of lanes at
// a time, with all its sums.
#include "backend/cpu/kernels/counts.h"

#include <algorithm>

namespace ada::backend::cpu::ADA_ISA {
namespace {

constexpr std::uint32_t kLargestMagnitude = 0x7fffffffu;

// Bits of the smallest fp32 above `x`, or (or_equal) not below it; x >= 0.
// The double may lie between two fp32 numbers: `near` is the nearest, above or below it.
std::uint32_t BitsAbove(double x, bool or_equal) {
  const auto near = static_cast<float>(x);
  const double at = near;
  return BitsOf(near) + (at < x || (at == x && !or_equal) ? 1 : 0);
}

}  // namespace

// With rounding to nearest, which values become zero or subnormal is known from their magnitudes
// before it: their bits are compared with thresholds, without the rounded values.
CountTally::CountTally(const Rounder& rounder, bool apart)
    : rounder_(rounder), apart_(apart), bins_(rounder.rounding) {
  edge_ = EdgeBits(rounder.rounding.edge, rounder.grid.largest_value);
  if (apart) return;
  // Half a spacing is a tie: to the even zero, but from the largest subnormal to a normal value.
  const NumberFormat& format = rounder.rounding.format;
  const double half = format.smallest_subnormal() / 2;
  zero_end_ = BitsAbove(half, false);
  subnormal_end_ = std::max(zero_end_, BitsAbove(format.smallest_normal() - half, true));
  // What overflows becomes zero or subnormal there: no magnitude is too large for that.
  if (rounder.grid.over < rounder.grid.min_normal) subnormal_end_ = kInfinityBits + 1;
}

// Empties the buffer. Extremes come first: they tell which of the rarer counts can find anything.
void CountTally::Count() {
  const BufferExtremes extremes = sums_.TakeExtremes(kept_.x, end_);
  for (int run = 0; run * kRun < end_; ++run) min_ = std::min(min_, extremes.min[run]);
  max_ = std::max(max_, extremes.max);
  kept_count_ += end_;
  zeros_ += extremes.zeros;
  if (apart_)
    CountSmallApart(extremes);
  else
    CountSmall(extremes);
  CountLarge(extremes);
  if (bins_.wanted()) bins_.Add(kept_.x, end_, extremes.min, extremes.max);
  end_ = 0;
}

// Counts values that become zeros or subnormals, and values below the subnormals. Among small
// values most are subnormals.
void CountTally::CountSmall(const BufferExtremes& extremes) {
  Counts<3> counts({rounder_.grid.below_min, zero_end_, subnormal_end_});
  const std::uint32_t low = std::max(rounder_.grid.below_min, zero_end_);
  for (int first = 0; first < end_; first += kRun) {
    const std::uint32_t min = extremes.min[first / kRun];
    if (min >= std::max(low, subnormal_end_)) continue;
    const int n = std::min(kRun, end_ - first);
    if (min < low)
      counts.Add(kept_.x + first, n);
    else
      counts.Add<2>(kept_.x + first, n);
  }
  below_min_ += counts[0], underflow_ += counts[1], subnormal_ += counts[2] - counts[1];
}
// A small scale makes zeros of values that are none.
void CountTally::CountSmallApart(const BufferExtremes& extremes) {
  Counts<2> before({rounder_.grid.below_min, kLargestMagnitude + 1});
  Counts<2> after({rounder_.grid.min_normal, kLargestMagnitude + 1});
  before.Add(kept_.before, end_);
  after.Add(kept_.after, end_);
  below_min_ += before[0] + (end_ - before[1]) - extremes.zeros, subnormal_ += after[0];
  zeros_after_ += end_ - after[1];
}

// Counts values that overflow, are not finite, or are above the edge after rounding: mostly rare. A
// finite value whose scaled one leaves fp32 is one that overflows.
void CountTally::CountLarge(const BufferExtremes& extremes) {
  const std::uint32_t overflow_min = rounder_.grid.overflow_min;
  const float* before = apart_ ? kept_.before : kept_.x;
  if (rounder_.grid.table != 0) {
    for (int i = 0; i < end_; ++i)
      beyond_ += MagnitudeBits(kept_.before[i]) >= kInfinityBits ||
                 MagnitudeBits(kept_.after[i]) >= kInfinityBits;
  } else if (apart_ || extremes.max >= overflow_min) {
    Counts<2> below({overflow_min, kLargestMagnitude + 1});
    below.Add(before, end_);
    beyond_ += below[1] - below[0];
  }
  if (extremes.max >= kInfinityBits) {
    Counts<2> below({kInfinityBits, kInfinityBits + 1});
    below.Add(kept_.x, end_);
    const std::int64_t others = end_ - extremes.zeros;
    not_finite_ += others - below[0], nan_ += others - below[1];
  }
  if (edge_ >= kInfinityBits) return;
  if (!apart_) {
    // Rounding to nearest at most doubles what does not overflow.
    if (extremes.max < std::min(edge_ - std::min(edge_, 1u << 23), overflow_min)) return;
    for (int i = 0; i < end_; i += kLanes)
      StoreF(kept_.after + i, RoundNearest(LoadF(before + i), rounder_));
  }
  Counts<2> below({edge_ + 1, kInfinityBits + 1});
  below.Add(kept_.after, end_);
  above_edge_ += below[1] - below[0];
}

// Zeros that filled up vectors were kept as values and are taken off again.
void CountTally::Finish(std::int64_t values, BlockStats& s) {
  if (end_ > 0) Count();
  s.max_bits = max_;
  bins_.Finish(values);
  if (!rounder_.rounding.count) return;
  if (kept_count_ > zeros_) s.min_bits = min_ - 1;
  const std::int64_t filled = kept_count_ - values;
  // Times a scale that is not finite they became NaN.
  const std::int64_t lost = MagnitudeBits(rounder_.rounding.scale) >= kInfinityBits ? filled : 0;
  s.zeros = zeros_ - filled;
  s.below_min = s.zeros + below_min_ + lost;
  s.underflow = apart_ ? zeros_after_ - zeros_ : underflow_;
  s.subnormal = subnormal_;
  s.overflow = beyond_ - lost - not_finite_, s.inf = not_finite_ - nan_, s.nan = nan_;
  s.above_edge = above_edge_;
  const NumberFormat& format = rounder_.rounding.format;
  const std::int64_t nan_zeros = format.has_nan ? 0 : s.nan;
  if (apart_) s.underflow -= nan_zeros;
  s.zeros_after = s.zeros + s.underflow + nan_zeros;
  // Under a scale that is not finite, or 0, which values are divided by, all become NaN.
  const bool broken = zeros_after_ < zeros_ || rounder_.rounding.scale == 0;
  if (apart_ && broken) s.underflow = s.zeros_after = 0;
  if (!format.is_signed) s.underflow = s.zeros_after = 0;  // there are no zeros
  // Two halves of eight lanes, in the order in which 512-bit registers are added up.
  const auto total = [](const double* lanes) {
    double halves[2] = {};
    for (int k = 0; k < kLanes; ++k) halves[k / 8] += lanes[k];
    return halves[0] + halves[1];
  };
  double sum[kLanes], square[kLanes], l1[kLanes];
  sums_.Store(sum, square, l1);
  s.sum = total(sum), s.sum_square = total(square), s.l1 = total(l1);
}

}  // namespace ada::backend::cpu::ADA_ISA
