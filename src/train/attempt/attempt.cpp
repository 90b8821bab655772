#include "train/attempt/attempt.h"

#include <cmath>

#include "core/stats.h"
#include "core/tensor_names.h"

namespace ada::train {

// The first micro-batch of a batch (Pass::accumulate is false) clears the sums.
void BatchCounts::Add(const backend::Pass& pass) {
  const auto& points = graph_.roundings();
  const bool first = !pass.accumulate;
  if (first) sums_.assign(points.size(), TensorStats{});
  if (first) largest_at_.assign(points.size(), -1);
  if (first) block_sums_.assign(points.size(), BlockCounts{});
  if (first && pass.bins) bin_sums_.assign(points.size(), ExponentBins{});
  for (std::size_t i = 0; i < points.size(); ++i) {
    // A weight and its gradient exist once a batch, whatever the micro-batches.
    const bool once = IsOfWholeBatch(points[i].tensor);
    // The process with the largest magnitude so far; a NaN counts as larger than all, by the
    // negated comparison.
    // A NaN, once it is there, stays the largest.
    if (first || (!std::isnan(sums_[i].max_abs) && !(points[i].stats->max_abs <= sums_[i].max_abs)))
      largest_at_[i] = points[i].largest_at;
    sums_[i] = first || once ? *points[i].stats : CombinedStats(sums_[i], *points[i].stats);
    if (points[i].blocks != nullptr) {
      if (once) block_sums_[i] = BlockCounts{};
      block_sums_[i].Add(*points[i].blocks);
    }
    if (!pass.bins || points[i].bins == nullptr) continue;
    if (once) bin_sums_[i] = ExponentBins{};
    bin_sums_[i].Add(*points[i].bins);
  }
}

const TensorStats& BatchCounts::StatsOf(std::size_t point) const {
  return sums_.empty() ? *graph_.roundings()[point].stats : sums_[point];
}

const ExponentBins& BatchCounts::BinsOf(std::size_t point) const {
  return bin_sums_.empty() ? *graph_.roundings()[point].bins : bin_sums_[point];
}

const BlockCounts& BatchCounts::BlocksOf(std::size_t point) const {
  return block_sums_.empty() ? *graph_.roundings()[point].blocks : block_sums_[point];
}

int BatchCounts::LargestAt(std::size_t point) const {
  return largest_at_.empty() ? graph_.roundings()[point].largest_at : largest_at_[point];
}

}  // namespace ada::train
