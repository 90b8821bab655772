// What is counted where a tensor is quantized to a block-scaled format: values lost and why, scales
// and their spread, signal and noise. Plain data.
#pragma once
#include <cstdint>
#include <span>

#include "number/blocks/block_rules_inline.h"

namespace ada {

// Counts of one tensor, or the sum of several. A value is lost if it is finite and not zero and its
// decoded value is zero; the cause is the first of these that applies:
//   beside_largest  it is lost too under the exact scale, which brings its block's largest
//                   magnitude to the largest element: the two are too far apart
//   tensor_scale    the tensor's scale stands at its end (TensorFactor::bounded)
//   scale_floor     the block's scale stands at its least (BlockFactor::at_floor)
//   scale_rounding  none of these: the scale was rounded up
struct BlockCounts {
  std::int64_t numel = 0, zeros = 0, inf = 0, nan = 0;
  std::int64_t broken_zeros = 0;   // zeros that are decoded as NaN, beside inf or NaN
  std::int64_t blocks = 0;         // square tiles count once
  std::int64_t zero_blocks = 0;    // blocks whose values are all zero
  std::int64_t broken_blocks = 0;  // with a decoded value that is inf or NaN
  std::int64_t lost_beside_largest = 0, lost_tensor_scale = 0, lost_scale_floor = 0,
               lost_scale_rounding = 0;
  std::int64_t saturated = 0;  // finite, decoded as not zero, clamped to the largest element
  // These count blocks that are neither zero nor broken:
  std::int64_t at_floor = 0, at_ceiling = 0;  // stored scales that are the rule's smallest, largest
  // log2 of the factor that elements are multiplied by, if it is finite and not zero; the extremes
  // are 0 if there is none.
  std::int64_t scaled_blocks = 0;
  double log2_min = 0, log2_max = 0, log2_sum = 0, log2_square_sum = 0;
  double signal = 0, noise = 0;  // sums of x^2 and of (x - decoded)^2
  // SQNR of single blocks, 10 log10(signal / noise), over the blocks that have noise.
  std::int64_t noisy_blocks = 0;
  double sqnr_sum = 0, sqnr_worst = 0;

  std::int64_t lost() const {
    return lost_beside_largest + lost_tensor_scale + lost_scale_floor + lost_scale_rounding;
  }
  // NaN if nothing was counted; sqnr_db is infinite without noise.
  double log2_mean() const;
  double log2_std() const;  // population
  double sqnr_db() const;
  double sqnr_mean_db() const;  // over noisy blocks
  double sqnr_worst_db() const;

  // Adds counts of other blocks. Sums are taken in the order of the calls.
  void Add(const BlockCounts& other);
  // The same blocks, as if their values and scales had carried `factor` more.
  BlockCounts Rescaled(double factor) const;
};

// Adds one block: its values, what they are decoded to, and by which factor.
void CountBlock(const BlockGrid& grid, const TensorFactor& tensor, const BlockFactor& factor,
                std::span<const float> values, std::span<const float> decoded, BlockCounts& counts);

}  // namespace ada
