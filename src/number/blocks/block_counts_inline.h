// What one block adds to the counts of a tensor, value by value; also for CUDA devices. A block's
// values come from at(i), a BlockValue, for i = 0 .. n - 1.
#pragma once
#include <cmath>
#include <cstdint>

#include "number/blocks/block_choices_inline.h"
#include "number/blocks/block_counts.h"
#include "number/stats.h"

namespace ada {

// A value as it was given and as its element decodes.
struct BlockValue {
  float x, decoded;
};

// What counting needs to know about all values of a block, from a first pass over them.
struct BlockSums {
  float largest = 0;  // finite magnitude
  double signal = 0, noise = 0;
  bool finite = true;   // as it was given
  bool broken = false;  // as it is decoded
};

ADA_HOST_DEVICE static inline bool IsFinite(float x) { return MagnitudeBits(x) < kInfinityBits; }

template <class ValueAt>
ADA_HOST_DEVICE static inline BlockSums SumsOfBlock(std::int64_t n, const ValueAt& at) {
  BlockSums sums;
  for (std::int64_t i = 0; i < n; ++i) {
    const BlockValue value = at(i);
    const auto x = static_cast<double>(value.x);
    const double error = x - static_cast<double>(value.decoded);
    const float magnitude = OfBits(MagnitudeBits(value.x));
    if (!IsFinite(value.decoded)) sums.broken = true;
    if (!IsFinite(value.x)) sums.finite = false;
    if (IsFinite(value.x) && sums.largest < magnitude) sums.largest = magnitude;
    sums.signal += x * x;
    sums.noise += error * error;
  }
  return sums;
}

// Whether x may be lost if `largest` is scaled exactly to the largest element: up to half a
// spacing, and where only a random draw made it zero (`drawn`) below a whole one. Products are
// exact.
ADA_HOST_DEVICE static inline bool LostBeside(const BlockGrid& grid, double x, double largest,
                                              bool drawn) {
  const double scaled = std::fabs(x) * static_cast<double>(grid.top),
               spacing = static_cast<double>(OfBits(grid.element.below_min)) * largest;
  return drawn ? scaled < spacing : scaled <= spacing / 2;
}

// Returns the counter of the first cause that applies, in the order of BlockCounts; `x` is lost.
ADA_HOST_DEVICE static inline std::int64_t& CauseOfLoss(const BlockGrid& grid,
                                                        const TensorFactor& tensor,
                                                        const BlockFactor& factor, float x,
                                                        float largest, BlockCounts& counts) {
  // To nearest this element would not have become zero, nor its decoded value.
  const float least = OfBits(grid.element.below_min);
  const bool drawn =
      OfBits(MagnitudeBits(Scaled(grid, factor, x))) > least / 2 && least * factor.decode != 0;
  if (LostBeside(grid, static_cast<double>(x), static_cast<double>(largest), drawn))
    return counts.lost_beside_largest;
  if (tensor.bounded) return counts.lost_tensor_scale;
  return factor.at_floor ? counts.lost_scale_floor : counts.lost_scale_rounding;
}

// Adds one value; inf and NaN are neither lost nor saturated. `largest`: of the block; inf where it
// contains inf or NaN.
ADA_HOST_DEVICE static inline void CountValue(const BlockGrid& grid, const TensorFactor& tensor,
                                              const BlockFactor& factor, const BlockValue& value,
                                              float largest, BlockCounts& counts) {
  const float x = value.x;
  const std::uint32_t magnitude = MagnitudeBits(x);
  ++counts.numel;
  counts.zeros += magnitude == 0;
  counts.inf += magnitude == kInfinityBits;
  counts.nan += magnitude > kInfinityBits;
  counts.broken_zeros += magnitude == 0 && value.decoded != 0;
  if (magnitude == 0 || magnitude >= kInfinityBits) return;
  if (value.decoded == 0) {
    ++CauseOfLoss(grid, tensor, factor, x, largest, counts);
  } else if (const std::uint32_t scaled = MagnitudeBits(Scaled(grid, factor, x));
             scaled >= grid.element.overflow_min && scaled <= kInfinityBits) {
    ++counts.saturated;
  }
}

// log2 of a finite x > 0; that of a power of two is a whole number, which CUDA's std::log2 does not
// promise.
ADA_HOST_DEVICE static inline double Log2Of(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5f ? exponent - 1 : std::log2(static_cast<double>(x));
}

// Adds the scale of a block that is neither zero nor broken. `decode`, which includes the tensor's
// scale, is the factor by which elements are multiplied.
ADA_HOST_DEVICE static inline void CountScale(const BlockFactor& factor, BlockCounts& counts) {
  counts.at_floor += factor.at_floor;
  counts.at_ceiling += factor.at_ceiling;
  if (!IsFinite(factor.decode) || factor.decode <= 0) return;
  const double log2 = Log2Of(factor.decode);
  const bool first = counts.scaled_blocks++ == 0;
  if (first || log2 < counts.log2_min) counts.log2_min = log2;
  if (first || log2 > counts.log2_max) counts.log2_max = log2;
  counts.log2_sum += log2;
  counts.log2_square_sum += log2 * log2;
}

// Signal and noise add up over all such blocks; a single block has an SQNR only where it has noise.
ADA_HOST_DEVICE static inline void CountNoise(const BlockSums& sums, BlockCounts& counts) {
  counts.signal += sums.signal;
  counts.noise += sums.noise;
  if (sums.noise <= 0) return;
  const double sqnr = 10 * std::log10(sums.signal / sums.noise);
  const bool first = counts.noisy_blocks++ == 0;
  if (first || sqnr < counts.sqnr_worst) counts.sqnr_worst = sqnr;
  counts.sqnr_sum += sqnr;
}

// CountBlock of n values.
template <class ValueAt>
ADA_HOST_DEVICE static inline void CountBlockOf(const BlockGrid& grid, const TensorFactor& tensor,
                                                const BlockFactor& factor, std::int64_t n,
                                                const ValueAt& at, BlockCounts& counts) {
  const BlockSums sums = SumsOfBlock(n, at);
  const float largest = sums.finite ? sums.largest : OfBits(kInfinityBits);
  ++counts.blocks;
  const auto given = [&at](std::int64_t i) { return at(i).x; };
  for (std::int64_t i = 0; i < n; ++i) {
    // Where values are doubled, so is the largest that a value of them may be lost beside.
    const BlockFactor own = FactorAt(grid, factor, n, i, given);
    const float beside = IsFinite(factor.decode) && factor.decode > 0
                             ? largest * (own.decode / factor.decode)
                             : largest;
    CountValue(grid, tensor, own, at(i), beside, counts);
  }
  const bool zero = sums.largest == 0 && sums.finite;
  counts.zero_blocks += zero;
  counts.broken_blocks += sums.broken;
  if (!sums.broken && !zero) {
    CountScale(factor, counts);
    if (sums.finite) CountNoise(sums, counts);
  }
}

// Values that became subnormal elements.
template <class ValueAt>
ADA_HOST_DEVICE static inline std::int64_t SubnormalsOfBlock(const BlockGrid& grid,
                                                             const BlockFactor& factor,
                                                             std::int64_t n, const ValueAt& at) {
  const auto given = [&at](std::int64_t i) { return at(i).x; };
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float decoded = at(i).decoded;
    const float least =
        OfBits(grid.element.min_normal) * FactorAt(grid, factor, n, i, given).decode;
    count += decoded != 0 && OfBits(MagnitudeBits(decoded)) < least;
  }
  return count;
}

// The scale that produced a block's decoded values, for counting; amax: of the block. If both
// scales of kFourOverSix give the same values it is the six.
template <class ValueAt>
ADA_HOST_DEVICE static inline BlockFactor CountedFactorOf(const BlockGrid& grid,
                                                          const TensorFactor& tensor, float amax,
                                                          std::int64_t n, const ValueAt& at) {
  const BlockFactor six = BlockFactorOf(grid, tensor, amax);
  if (grid.rule != BlockRule::kFourOverSix) return six;
  const auto gives = [&](const BlockFactor& of) {
    for (std::int64_t i = 0; i < n; ++i) {
      const BlockValue value = at(i);
      const float again = ValueOf(grid, of, RoundElement(grid, Scaled(grid, of, value.x)));
      if (BitsOf(again) != BitsOf(value.decoded)) return false;
    }
    return true;
  };
  const BlockFactor four = FourFactorOf(grid, tensor, amax);
  return !gives(six) && gives(four) ? four : six;
}

// BlockCounts::Add.
ADA_HOST_DEVICE static inline void AddCounts(const BlockCounts& other, BlockCounts& to) {
  to.numel += other.numel, to.zeros += other.zeros, to.inf += other.inf, to.nan += other.nan;
  to.broken_zeros += other.broken_zeros;
  to.blocks += other.blocks, to.zero_blocks += other.zero_blocks;
  to.broken_blocks += other.broken_blocks;
  to.lost_beside_largest += other.lost_beside_largest;
  to.lost_tensor_scale += other.lost_tensor_scale;
  to.lost_scale_floor += other.lost_scale_floor;
  to.lost_scale_rounding += other.lost_scale_rounding;
  to.saturated += other.saturated;
  to.at_floor += other.at_floor, to.at_ceiling += other.at_ceiling;
  if (other.scaled_blocks > 0) {
    const bool first = to.scaled_blocks == 0;
    if (first || other.log2_min < to.log2_min) to.log2_min = other.log2_min;
    if (first || other.log2_max > to.log2_max) to.log2_max = other.log2_max;
  }
  to.scaled_blocks += other.scaled_blocks;
  to.log2_sum += other.log2_sum, to.log2_square_sum += other.log2_square_sum;
  to.signal += other.signal, to.noise += other.noise;
  if (other.noisy_blocks > 0 && (to.noisy_blocks == 0 || other.sqnr_worst < to.sqnr_worst))
    to.sqnr_worst = other.sqnr_worst;
  to.noisy_blocks += other.noisy_blocks;
  to.sqnr_sum += other.sqnr_sum;
}

// Converts a tensor's block counts to those of a rounding; `stats`: of the values before it.
ADA_HOST_DEVICE static inline void TakeBlockCounts(const BlockCounts& blocks,
                                                   std::int64_t subnormal, TensorStats& stats) {
  stats.underflow = blocks.lost_beside_largest + blocks.lost_tensor_scale +
                    blocks.lost_scale_floor + blocks.lost_scale_rounding;
  stats.zeros_after = stats.zeros_before - blocks.broken_zeros + stats.underflow;
  stats.below_min = stats.zeros_after;
  stats.subnormal = subnormal;
  stats.overflow = blocks.saturated;
  stats.above_edge = 0;
}

}  // namespace ada
