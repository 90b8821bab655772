// Adds up the counts of micro-batches and derives facts from them. All counts have been fetched
// from the backend and joined over the processes when these functions are called: they only read.
#include "step/attempt/attempt.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "io/tensor_names.h"
#include "number/stats.h"

namespace ada::step {

// Micro-batches may carry different scales: their sums carry the smaller one, so that no magnitude
// leaves a format in which it is finite.
void BatchCounts::Sum::Add(const graph::RoundingPoint& point) {
  const double its = point.carried(), common = std::min(scale, its);
  const TensorStats before = Rescaled(stats, common / scale, left);
  const TensorStats added = Rescaled(*point.stats, common / its, point.leaves_format());
  // A NaN, once it is there, stays the largest: both comparisons are false for it.
  if (!std::isnan(before.max_abs) && !(added.max_abs <= before.max_abs))
    largest_at = point.largest_at;
  stats = CombinedStats(before, added);
  left = left || point.leaves_format();
  if (point.blocks != nullptr) {
    blocks = blocks.Rescaled(common / scale);
    blocks.Add(point.blocks->Rescaled(common / its));
  }
  scale = common;
}

namespace {

// What the next micro-batch does to a tensor again. A weight exists once a batch, and so does a sum
// of gradients that nothing rounds; in fewer bits the sum is rounded after each micro-batch, and
// where sums are made elsewhere (`apart`) each micro-batch has a dw of its own.
bool IsRoundedEachTime(const graph::RoundingPoint& point, bool apart) {
  return point.tensor == "dw" ? apart || !(point.format == kFp32) : !IsOfWholeBatch(point.tensor);
}

}  // namespace

// The first micro-batch of a batch (Pass::accumulate is false) replaces the sums. Where processes
// share a batch dw is rounded once, after the last one; before it there are no counts.
void BatchCounts::Add(const backend::Pass& pass, bool apart) {
  const auto& points = graph_.roundings();
  const bool first = !pass.accumulate;
  sums_.resize(points.size());
  if (pass.bins) bin_sums_.resize(points.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    const graph::RoundingPoint& point = points[i];
    const bool replaces = first || !IsRoundedEachTime(point, apart) || sums_[i].stats.numel == 0;
    if (replaces)
      sums_[i] = {*point.stats, point.blocks != nullptr ? *point.blocks : BlockCounts{},
                  point.carried(), point.largest_at, point.leaves_format()};
    else
      sums_[i].Add(point);
    if (!pass.bins || point.bins == nullptr) continue;
    if (replaces) bin_sums_[i] = ExponentBins{};
    bin_sums_[i].Add(*point.bins);
  }
  const auto& sums = graph_.sums();
  if (first) accumulators_.assign(sums.size(), {});
  for (std::size_t i = 0; i < sums.size(); ++i) accumulators_[i].Add(*sums[i].counts);
  const auto& judged = graph_.judged_sums();
  if (first) judged_.assign(judged.size(), {});
  for (std::size_t i = 0; pass.bins && i < judged.size(); ++i) judged_[i].Add(*judged[i].counts);
}

const scaling::AccumulatorCounts& BatchCounts::JudgedSumsOf(std::size_t point) const {
  return judged_.empty() ? *graph_.judged_sums()[point].counts : judged_[point];
}

const scaling::AccumulatorCounts& BatchCounts::SumsOf(std::size_t point) const {
  return accumulators_.empty() ? *graph_.sums()[point].counts : accumulators_[point];
}

const TensorStats& BatchCounts::StatsOf(std::size_t point) const {
  return sums_.empty() ? *graph_.roundings()[point].stats : sums_[point].stats;
}

const ExponentBins& BatchCounts::BinsOf(std::size_t point) const {
  return bin_sums_.empty() ? *graph_.roundings()[point].bins : bin_sums_[point];
}

const BlockCounts& BatchCounts::BlocksOf(std::size_t point) const {
  return sums_.empty() ? *graph_.roundings()[point].blocks : sums_[point].blocks;
}

double BatchCounts::ToLastScale(std::size_t point) const {
  return sums_.empty() ? 1 : graph_.roundings()[point].carried() / sums_[point].scale;
}

TensorStats BatchCounts::LoggedStats(std::size_t point) const {
  return Rescaled(StatsOf(point), ToLastScale(point), LeavesFormat(point));
}

BlockCounts BatchCounts::LoggedBlocks(std::size_t point) const {
  return BlocksOf(point).Rescaled(ToLastScale(point));
}

bool BatchCounts::LeavesFormat(std::size_t point) const {
  return sums_.empty() ? graph_.roundings()[point].leaves_format() : sums_[point].left;
}

int BatchCounts::LargestAt(std::size_t point) const {
  return sums_.empty() ? graph_.roundings()[point].largest_at : sums_[point].largest_at;
}

namespace {

// The largest magnitude that stays finite when it is rounded.
// Rounding is monotonic, so one number decides for all values: a format that keeps infinity out
// clamps everything, one that saturates loses only infinity itself, and any other has a threshold
// above which values overflow.
float LargestThatStays(const NumberFormat& format) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  if (std::isfinite(RoundTo(format, kInf))) return kInf;
  const bool saturates = std::isfinite(RoundTo(format, std::numeric_limits<float>::max()));
  return std::nextafter(saturates ? kInf : OverflowThreshold(format), 0.0f);
}

}  // namespace

// Scales are listed in the order of the backward pass, so the first that has a scaler is that of
// the last layer of the forward order, to which the logit gradient belongs.
std::vector<LayerRounding> LayerRoundings(const graph::Graph& graph) {
  std::set<std::string> has_scale;
  std::string last;  // of the forward order
  for (const graph::ScalePoint& point : graph.scales()) {
    if (point.scaler == nullptr) continue;
    if (last.empty()) last = point.layer;
    has_scale.insert(point.layer);
  }
  std::vector<LayerRounding> all;
  for (std::size_t i = 0; i < graph.roundings().size(); ++i) {
    const graph::RoundingPoint& p = graph.roundings()[i];
    const std::string layer = p.layer == "loss" ? last : DecisionOf(p.layer, p.tensor);
    const bool of_scores = p.layer == "loss" && p.tensor == "dx2";
    const bool of_layer = p.tensor == "dx" || p.tensor == "dw" || IsOfAttention(p.tensor);
    if ((of_layer || of_scores) && has_scale.count(layer) > 0)
      all.push_back({i, layer, LargestThatStays(p.format)});
  }
  return all;
}

std::vector<backend::WatchedRounding> WatchedRoundings(const graph::Graph& graph) {
  std::vector<backend::WatchedRounding> watched;
  for (const LayerRounding& r : LayerRoundings(graph))
    watched.push_back({graph.roundings()[r.point].backend_stats, r.most});
  return watched;
}

void FillLayerOverflow(const graph::Graph& graph, const std::vector<LayerRounding>& roundings,
                       const BatchCounts& counts, scaling::StepOutcome& attempt) {
  for (const graph::ScalePoint& point : graph.scales())
    if (point.scaler != nullptr) attempt.layer_overflow[point.layer] = false;
  bool any = false;
  for (const LayerRounding& r : roundings)
    // The negated comparison is true for NaN as well.
    if (!(counts.StatsOf(r.point).max_abs <= r.most)) attempt.layer_overflow[r.layer] = any = true;
  // The overflow arose where nothing is rounded, in fp32 gradients of biases for example: no layer
  // can be named, and the scales of all go down.
  if (!attempt.overflow || any) return;
  for (auto& layer : attempt.layer_overflow) layer.second = true;
}

AttemptFacts::AttemptFacts(const graph::Graph& graph, const BatchCounts& counts)
    : graph_(graph), counts_(counts), layer_roundings_(LayerRoundings(graph)) {}

void AttemptFacts::Fill(const scaling::StatsRequest& request, scaling::StepOutcome& attempt) const {
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; request.edge > 0 && i < points.size(); ++i) {
    if (!IsDx(points[i].tensor)) continue;
    const TensorStats& s = counts_.StatsOf(i);
    attempt.above += s.above_edge;
    attempt.below += s.numel - s.above_edge;
  }
  if (request.layers) FillLayerOverflow(graph_, layer_roundings_, counts_, attempt);
}

// The largest magnitude of a tensor may be finite before rounding and infinite in the tensor's
// format: such a tensor caused the overflow, so it is also searched for. If the reason is that its
// per-tensor scale was too large, it has outgrown its scale. Blocks are known in steps with counts.
NotFiniteTensor AttemptFacts::FirstNotFinite() const {
  using Cause = telemetry::NotFiniteCause;
  const auto& points = graph_.roundings();
  for (std::size_t i = 0; i < points.size(); ++i) {
    const TensorStats& stats = counts_.StatsOf(i);
    const float largest = stats.max_abs;
    const bool finite = std::isfinite(largest);
    if (finite && stats.full && points[i].blocks != nullptr &&
        counts_.BlocksOf(i).broken_blocks > 0)
      return {points[i].layer,      points[i].tensor, largest,
              counts_.LargestAt(i), Cause::kBlocks,   points[i].carried()};
    if (!counts_.LeavesFormat(i)) continue;
    const bool outgrew = points[i].per_tensor_scale != nullptr && finite;
    return {points[i].layer,
            points[i].tensor,
            largest,
            counts_.LargestAt(i),
            outgrew ? Cause::kOutgrown : Cause::kNone,
            points[i].carried()};
  }
  return {};
}

std::string AttemptFacts::DecisionErrors() const {
  for (const graph::ScalePoint& point : graph_.scales()) {
    const scaling::DecisionError error = point.decision->error;
    if (error == scaling::DecisionError::kNone) continue;
    return "layer " + point.layer + ": " + scaling::DecisionErrorText(error) +
           " (scaling.reference: true ends the run there, as the original does)";
  }
  return "";
}

}  // namespace ada::step
