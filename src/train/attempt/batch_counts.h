// What was counted in the passes of a batch: where it is one micro-batch the graph's own counts,
// else those of all micro-batches added up.
#pragma once
#include <cstddef>
#include <vector>

#include "graph/graph.h"

namespace ada::train {

// Owned by the trainer. As long as Add is never called it hands on the graph's counts and costs
// nothing; after the first Add the sums are what counts. References that it returns are valid until
// the next Add or pass.
class BatchCounts {
 public:
  explicit BatchCounts(const graph::Graph& graph) : graph_(graph) {}

  // Adds the counts of a micro-batch that was collected; not called where there is one.
  void Add(const backend::Pass& pass);

  // By place in the graph's list of roundings.
  const TensorStats& StatsOf(std::size_t point) const;
  const ExponentBins& BinsOf(std::size_t point) const;
  const BlockCounts& BlocksOf(std::size_t point) const;
  int LargestAt(std::size_t point) const;  // RoundingPoint::largest_at

 private:
  const graph::Graph& graph_;
  std::vector<TensorStats> sums_;
  std::vector<BlockCounts> block_sums_;  // of roundings in block-scaled formats
  std::vector<ExponentBins> bin_sums_;   // where histograms are taken
  std::vector<int> largest_at_;
};

}  // namespace ada::train
