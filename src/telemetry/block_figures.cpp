// Computes the figures of a block-scaled tensor from its counts, and writes them in words.
#include "telemetry/block_figures.h"

#include <cmath>

#include "io/text.h"
#include "number/stats.h"

namespace ada::telemetry {

void BlockFigures::Take(const BlockCounts& counts) {
  numel = counts.numel, zeros = counts.zeros, inf = counts.inf, nan = counts.nan;
  lost = counts.lost();
  lost_pct_nonzero = PercentOf(lost, numel - zeros);
  lost_beside_largest = counts.lost_beside_largest;
  lost_scale_rounding = counts.lost_scale_rounding;
  lost_scale_floor = counts.lost_scale_floor;
  lost_tensor_scale = counts.lost_tensor_scale;
  saturated = counts.saturated;
  blocks = counts.blocks, zero_blocks = counts.zero_blocks, broken_blocks = counts.broken_blocks;
  // The extremes of no block at all would read as a scale of 2^0.
  if (counts.scaled_blocks > 0) scale_log2_min = counts.log2_min, scale_log2_max = counts.log2_max;
  scale_log2_mean = counts.log2_mean(), scale_log2_std = counts.log2_std();
  scale_floor = counts.at_floor, scale_ceiling = counts.at_ceiling;
  sqnr_db = counts.sqnr_db();
  sqnr_mean_db = counts.sqnr_mean_db(), sqnr_worst_db = counts.sqnr_worst_db();
}

// NaN means that there was nothing to measure, infinity that nothing was lost, and -infinity that
// values became inf.
std::string DecibelText(double db) {
  if (std::isnan(db)) return "-";
  if (std::isinf(db)) return db > 0 ? "exact" : "-inf";
  return Formatted("%.1f", db);
}

std::string Log2Text(double log2) { return std::isnan(log2) ? "-" : Formatted("%.1f", log2); }

bool LosesMore(const BlockFigures& a, const BlockFigures& b) {
  const auto lost = [](const BlockFigures& figures) {
    // Comparing NaN would break the order of a sort.
    return std::isnan(figures.lost_pct_nonzero) ? -1 : figures.lost_pct_nonzero;
  };
  return lost(a) > lost(b);
}

std::string ScalesText(const BlockFigures& figures) {
  if (std::isnan(figures.scale_log2_min)) return "-";
  return Formatted("%.0f", figures.scale_log2_min) + ".." +
         Formatted("%.0f", figures.scale_log2_max);
}

}  // namespace ada::telemetry
