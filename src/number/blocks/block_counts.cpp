// Computes means and ratios of counts; how a block is counted is block_counts_inline.h's matter.
#include "number/blocks/block_counts.h"

#include <algorithm>
#include <cmath>

#include "number/blocks/block_counts_inline.h"

namespace ada {
namespace {

double MeanOf(double sum, std::int64_t n) { return n > 0 ? sum / static_cast<double>(n) : NAN; }

}  // namespace

double BlockCounts::log2_mean() const { return MeanOf(log2_sum, scaled_blocks); }

double BlockCounts::log2_std() const {
  if (scaled_blocks == 0) return NAN;
  // Equal scales would be left with what cancellation leaves, which may also be below 0.
  if (log2_min == log2_max) return 0;
  const double mean = log2_mean();
  return std::sqrt(std::max(0.0, MeanOf(log2_square_sum, scaled_blocks) - mean * mean));
}

double BlockCounts::sqnr_db() const { return signal > 0 ? 10 * std::log10(signal / noise) : NAN; }

double BlockCounts::sqnr_mean_db() const { return MeanOf(sqnr_sum, noisy_blocks); }
double BlockCounts::sqnr_worst_db() const { return noisy_blocks > 0 ? sqnr_worst : NAN; }

void BlockCounts::Add(const BlockCounts& other) { AddCounts(other, *this); }

BlockCounts BlockCounts::Rescaled(double factor) const {
  BlockCounts counts = *this;
  if (factor == 1 || !std::isfinite(factor) || factor <= 0) return counts;
  counts.signal *= factor * factor, counts.noise *= factor * factor;
  if (scaled_blocks == 0) return counts;
  const double shift = std::log2(factor), n = static_cast<double>(scaled_blocks);
  counts.log2_min += shift, counts.log2_max += shift;
  counts.log2_sum += n * shift;
  counts.log2_square_sum += 2 * shift * log2_sum + n * shift * shift;
  return counts;
}

void CountBlock(const BlockGrid& grid, const TensorFactor& tensor, const BlockFactor& factor,
                std::span<const float> values, std::span<const float> decoded,
                BlockCounts& counts) {
  const auto at = [&](std::int64_t i) {
    const auto k = static_cast<std::size_t>(i);
    return BlockValue{values[k], decoded[k]};
  };
  CountBlockOf(grid, tensor, factor, static_cast<std::int64_t>(values.size()), at, counts);
}

}  // namespace ada
