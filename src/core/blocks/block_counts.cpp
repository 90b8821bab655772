#include "core/blocks/block_counts.h"

#include <algorithm>
#include <cmath>

namespace ada {
namespace {

struct BlockSums {
  float largest = 0;  // finite magnitude
  double signal = 0, noise = 0;
  bool broken = false;
};

BlockSums SumsOf(std::span<const float> values, std::span<const float> decoded) {
  BlockSums sums;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto x = static_cast<double>(values[i]);
    const double error = x - static_cast<double>(decoded[i]);
    if (!std::isfinite(decoded[i])) sums.broken = true;
    if (std::isfinite(values[i])) sums.largest = std::max(sums.largest, std::fabs(values[i]));
    sums.signal += x * x;
    sums.noise += error * error;
  }
  return sums;
}

// Whether x is lost where `largest` becomes the largest element exactly. Every product is exact.
bool LostBeside(const BlockGrid& grid, double x, double largest) {
  const double half_spacing = static_cast<double>(OfBits(grid.element.below_min)) / 2;
  return std::fabs(x) * static_cast<double>(grid.top) <= half_spacing * largest;
}

std::int64_t& CauseOf(const BlockGrid& grid, const TensorFactor& tensor, const BlockFactor& factor,
                      float x, float largest, BlockCounts& counts) {
  if (LostBeside(grid, static_cast<double>(x), static_cast<double>(largest)))
    return counts.lost_beside_largest;
  if (tensor.bounded) return counts.lost_tensor_scale;
  return factor.at_floor ? counts.lost_scale_floor : counts.lost_scale_rounding;
}

void CountValues(const BlockGrid& grid, const TensorFactor& tensor, const BlockFactor& factor,
                 std::span<const float> values, std::span<const float> decoded, float largest,
                 BlockCounts& counts) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float x = values[i];
    ++counts.numel;
    counts.zeros += x == 0;
    counts.inf += std::isinf(x);
    counts.nan += std::isnan(x);
    if (x == 0 || !std::isfinite(x)) continue;
    if (decoded[i] == 0) {
      ++CauseOf(grid, tensor, factor, x, largest, counts);
    } else if (const std::uint32_t scaled = MagnitudeBits(x * factor.encode);
               scaled >= grid.element.overflow_min && scaled <= kInfinityBits) {
      ++counts.saturated;
    }
  }
}

void CountScale(const BlockFactor& factor, BlockCounts& counts) {
  counts.at_floor += factor.at_floor;
  counts.at_ceiling += factor.at_ceiling;
  if (!std::isfinite(factor.decode) || factor.decode <= 0) return;
  const double log2 = std::log2(static_cast<double>(factor.decode));
  const bool first = counts.scaled_blocks++ == 0;
  counts.log2_min = first ? log2 : std::min(counts.log2_min, log2);
  counts.log2_max = first ? log2 : std::max(counts.log2_max, log2);
  counts.log2_sum += log2;
  counts.log2_square_sum += log2 * log2;
}

void CountNoise(const BlockSums& sums, BlockCounts& counts) {
  counts.signal += sums.signal;
  counts.noise += sums.noise;
  if (sums.noise <= 0) return;
  const double sqnr = 10 * std::log10(sums.signal / sums.noise);
  counts.sqnr_worst = counts.noisy_blocks++ == 0 ? sqnr : std::min(counts.sqnr_worst, sqnr);
  counts.sqnr_sum += sqnr;
}

double MeanOf(double sum, std::int64_t n) { return n > 0 ? sum / static_cast<double>(n) : NAN; }

}  // namespace

double BlockCounts::log2_mean() const { return MeanOf(log2_sum, scaled_blocks); }

double BlockCounts::log2_std() const {
  const double mean = log2_mean();
  return std::sqrt(std::max(0.0, MeanOf(log2_square_sum, scaled_blocks) - mean * mean));
}

double BlockCounts::sqnr_db() const { return signal > 0 ? 10 * std::log10(signal / noise) : NAN; }

double BlockCounts::sqnr_mean_db() const { return MeanOf(sqnr_sum, noisy_blocks); }
double BlockCounts::sqnr_worst_db() const { return noisy_blocks > 0 ? sqnr_worst : NAN; }

void BlockCounts::Add(const BlockCounts& other) {
  numel += other.numel, zeros += other.zeros, inf += other.inf, nan += other.nan;
  blocks += other.blocks, zero_blocks += other.zero_blocks, broken_blocks += other.broken_blocks;
  lost_beside_largest += other.lost_beside_largest, lost_tensor_scale += other.lost_tensor_scale;
  lost_scale_floor += other.lost_scale_floor, lost_scale_rounding += other.lost_scale_rounding;
  saturated += other.saturated;
  at_floor += other.at_floor, at_ceiling += other.at_ceiling;
  if (other.scaled_blocks > 0) {
    log2_min = scaled_blocks > 0 ? std::min(log2_min, other.log2_min) : other.log2_min;
    log2_max = scaled_blocks > 0 ? std::max(log2_max, other.log2_max) : other.log2_max;
  }
  scaled_blocks += other.scaled_blocks;
  log2_sum += other.log2_sum, log2_square_sum += other.log2_square_sum;
  signal += other.signal, noise += other.noise;
  if (other.noisy_blocks > 0)
    sqnr_worst = noisy_blocks > 0 ? std::min(sqnr_worst, other.sqnr_worst) : other.sqnr_worst;
  noisy_blocks += other.noisy_blocks;
  sqnr_sum += other.sqnr_sum;
}

void CountBlock(const BlockGrid& grid, const TensorFactor& tensor, const BlockFactor& factor,
                std::span<const float> values, std::span<const float> decoded,
                BlockCounts& counts) {
  const BlockSums sums = SumsOf(values, decoded);
  ++counts.blocks;
  CountValues(grid, tensor, factor, values, decoded, sums.largest, counts);
  if (sums.broken) {
    ++counts.broken_blocks;
  } else if (sums.largest == 0) {
    ++counts.zero_blocks;
  } else {
    CountScale(factor, counts);
    CountNoise(sums, counts);
  }
}

}  // namespace ada
