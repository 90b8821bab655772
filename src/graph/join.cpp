// Joins the counts of a batch that several processes share: sums and extremes, accumulated in the
// order of the processes.
#include <bit>
#include <cmath>
#include <cstring>

#include "error.h"
#include "graph/graph.h"
#include "io/tensor_names.h"
#include "number/stats.h"

namespace ada::graph {
namespace {

// The statistics of one rounding in one process, in a pass that counts everything.
struct PartialStats {
  TensorStats stats;
  double scale = 1;
  bool left = false;  // the largest magnitude left its format
};
// The same in a pass that records only the largest magnitude.
struct PartialLargest {
  float max_abs = 0;
  double scale = 1;
  std::int64_t numel = 0;
  bool left = false;
};

// Weights and their gradients are the same in all processes when they are counted.
bool IsOfBatch(const RoundingPoint& point) { return !IsOfWholeBatch(point.tensor); }

bool IsLarger(float one, float other) {
  return std::bit_cast<std::uint32_t>(one) >
         std::bit_cast<std::uint32_t>(other);  // NaN the largest
}

// Overloads for the two kinds of parts, so that JoinStats below is written only once.
TensorStats StatsOfPart(const PartialStats& part) { return part.stats; }
TensorStats StatsOfPart(const PartialLargest& part) {
  TensorStats stats;
  stats.max_abs = part.max_abs, stats.numel = part.numel;
  return stats;
}
void Fill(const RoundingPoint& point, PartialStats& part) {
  part = {*point.stats, point.carried(), point.leaves_format()};
}
void Fill(const RoundingPoint& point, PartialLargest& part) {
  part = {point.stats->max_abs, point.carried(), point.stats->numel, point.leaves_format()};
}

// Every process gathers the parts of all and adds them in rank order, so that all get bitwise equal
// sums. All processes must list the same points in the same order, which they do because their
// graphs come from one configuration. `largest_at` becomes the rank with the largest magnitude, the
// lowest rank if several have it.
template <class Part>
void JoinStats(parallel::Communicator& communicator, std::vector<RoundingPoint>& points) {
  std::vector<Part> mine;
  for (const RoundingPoint& point : points)
    if (IsOfBatch(point)) Fill(point, mine.emplace_back());
  const std::vector<Part> all = parallel::GatherAll(communicator, mine);
  std::size_t at = 0;
  for (RoundingPoint& point : points) {
    if (!IsOfBatch(point)) continue;
    TensorStats total;
    for (int rank = 0; rank < communicator.ranks(); ++rank) {
      const Part& part = all[static_cast<std::size_t>(rank) * mine.size() + at];
      const TensorStats stats = Rescaled(StatsOfPart(part), all[at].scale / part.scale, part.left);
      if (rank == 0 || IsLarger(stats.max_abs, total.max_abs)) point.largest_at = rank;
      const bool full = rank == 0 ? stats.full : total.full && stats.full;
      total = rank == 0 ? stats : CombinedStats(total, stats);
      total.full = full;
    }
    // The lists point to memory that this graph owns, so it may be written.
    const_cast<TensorStats&>(*point.stats) = total;
    ++at;
  }
}

// The counts of blocks carry the scale of their process, bins carry none.
struct PartialBlocks {
  BlockCounts counts;
  double scale = 1;
};
void Fill(const RoundingPoint& point, PartialBlocks& part) {
  part = {*point.blocks, point.carried()};
}
void Fill(const RoundingPoint& point, ExponentBins& part) { part = *point.bins; }
BlockCounts CountsOf(const PartialBlocks& part, const PartialBlocks& first) {
  return part.counts.Rescaled(first.scale / part.scale);
}
const ExponentBins& CountsOf(const ExponentBins& part, const ExponentBins&) { return part; }

// Adds up what points count besides their statistics, where they do.
template <class Part, class Counts>
void JoinSums(parallel::Communicator& communicator, const std::vector<RoundingPoint>& points,
              const Counts* RoundingPoint::*counts) {
  std::vector<Part> mine;
  for (const RoundingPoint& point : points)
    if (IsOfBatch(point) && point.*counts != nullptr) Fill(point, mine.emplace_back());
  if (mine.empty()) return;
  const std::vector<Part> all = parallel::GatherAll(communicator, mine);
  std::size_t at = 0;
  for (const RoundingPoint& point : points) {
    if (!IsOfBatch(point) || point.*counts == nullptr) continue;
    auto& total = const_cast<Counts&>(*(point.*counts));
    total = Counts();
    for (std::size_t part = at; part < all.size(); part += mine.size())
      total.Add(CountsOf(all[part], all[at]));
    ++at;
  }
}

// Each process has sums of its own part of the batch; those of dw are what is added up afterwards.
void JoinAccumulators(parallel::Communicator& communicator, const std::vector<SumPoint>& points) {
  if (points.empty()) return;
  std::vector<scaling::AccumulatorCounts> mine;
  for (const SumPoint& point : points) mine.push_back(*point.counts);
  const std::vector<scaling::AccumulatorCounts> all = parallel::GatherAll(communicator, mine);
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto& total = const_cast<scaling::AccumulatorCounts&>(*points[i].counts);
    total = scaling::AccumulatorCounts();
    for (std::size_t part = i; part < all.size(); part += mine.size()) total.Add(all[part]);
  }
}

}  // namespace

void Graph::ForgetGradientCounts() {
  results_.Fetch();  // because all of it is sent back
  backend_.Synchronize();
  for (const RoundingPoint& point : roundings_)
    if (point.tensor == "dw") const_cast<TensorStats&>(*point.stats) = TensorStats();
  results_.Send();
}

// Short parts keep messages small in steps that record only largest magnitudes, which policies and
// per-tensor scales need in every step.
void Graph::Join(parallel::Communicator& communicator, const backend::Pass& pass) {
  if (!pass.part) return;
  if (pass.count)
    JoinStats<PartialStats>(communicator, roundings_);
  else
    JoinStats<PartialLargest>(communicator, roundings_);
  if (pass.count) JoinSums<PartialBlocks>(communicator, roundings_, &RoundingPoint::blocks);
  if (pass.count) JoinAccumulators(communicator, sums_);
  if (pass.bins) JoinAccumulators(communicator, judged_sums_);
  if (pass.bins) JoinSums<ExponentBins>(communicator, roundings_, &RoundingPoint::bins);
}

}  // namespace ada::graph
