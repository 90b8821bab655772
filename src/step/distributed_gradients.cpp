// Gradients are summed in buckets in the order in which the backward pass completes them, so that
// all processes sum in the same order and sums have the same bits everywhere.
#include "step/distributed_gradients.h"

#include <cmath>

#include "error.h"
#include "number/stats.h"
#include "step/weight_values.h"

namespace ada::step {
namespace {

std::vector<std::int64_t> SizesOf(const graph::Graph& graph, const std::vector<int>& order) {
  std::vector<std::int64_t> sizes;
  for (const int parameter : order)
    sizes.push_back(graph.parameters()[static_cast<std::size_t>(parameter)].numel());
  return sizes;
}

NumberFormat FormatOf(config::GradientTransport transport) {
  return transport == config::GradientTransport::kFp16   ? kFp16
         : transport == config::GradientTransport::kBf16 ? kBf16
                                                         : kFp32;
}

// A ring's partial sums are what travels, so they have its format unless another is given. Under
// fp8_lm all sums of matrices have the format of the gradients that are added up.
parallel::Reduction ReductionOf(const config::Config& config, const graph::Graph& graph,
                                const std::vector<int>& order) {
  const config::ParallelConfig& parallel = config.parallel;
  const config::ReductionConfig& reduction = parallel.reduction;
  const bool ring = reduction.order == config::ReductionConfig::Order::kRing;
  const config::AccumulatedGradientsConfig& accumulated = config.precision.accumulated_gradients;
  if (accumulated.scales()) {
    parallel::Reduction scaled{ring, accumulated.format, {}};
    scaled.format.saturate = true;
    for (const int parameter : order)
      scaled.exempt.push_back(!IsMatrix(graph.parameters()[static_cast<std::size_t>(parameter)]));
    return scaled;
  }
  const config::GradientTransport usual =
      ring ? parallel.gradients : config::GradientTransport::kFp32;
  return {ring, FormatOf(reduction.format.value_or(usual)), {}};
}

// Magnitudes and moments of values that carried `scale`, as those of the values themselves.
void RemoveScale(double scale, TensorStats& stats) {
  stats.max_abs = static_cast<float>(static_cast<double>(stats.max_abs) / scale);
  stats.min_abs = static_cast<float>(static_cast<double>(stats.min_abs) / scale);
  stats.mean /= scale, stats.std /= scale, stats.l1 /= scale, stats.l2 /= scale;
}

// parallel.bucket_mb in bytes.
std::int64_t BucketBytes(const config::ParallelConfig& config) {
  return static_cast<std::int64_t>(config.bucket_mb * 1024 * 1024);
}

}  // namespace

DistributedGradients::DistributedGradients(const config::Config& config, Team& team,
                                           graph::Graph& graph, backend::Backend& backend)
    : team_(team),
      graph_(graph),
      backend_(backend),
      are_parts_(team.ranks() > 1),
      forgets_counts_(are_parts_ && config.train.accumulate > 1),
      format_(are_parts_ ? FormatOf(config.parallel.gradients) : kFp32),
      order_(graph.GradientOrder()),
      reduction_(ReductionOf(config, graph, order_)),
      narrow_(are_parts_ && (format_ != kFp32 || reduction_.format != kFp32)) {
  if (!are_parts_) return;
  // Sums in another order or format, and those of what the host has added up, are the host's.
  const bool plain = !reduction_.ring && reduction_.format == kFp32 &&
                     config.precision.accumulated_gradients.format == kFp32;
  if (plain) in_pass_ = backend.MakeGradientSums(SpecOf(config.parallel));
  if (!in_pass_)
    on_host_.emplace(team.world().large(), SizesOf(graph, order_), BucketBytes(config.parallel),
                     format_, reduction_);
}

// With several passes for a batch gradients are counted once, when they are sums: counts of the
// batch before are cleared here.
void DistributedGradients::Begin(float loss_scale) {
  scale_ = narrow_ && reduction_.exempt.empty() ? loss_scale : 1;
  if (forgets_counts_) graph_.ForgetGradientCounts();
}

// If batch norms use separate statistics in each process, their running averages are averaged
// together with the gradients.
backend::GradientSumsSpec DistributedGradients::SpecOf(const config::ParallelConfig& config) const {
  backend::GradientSumsSpec spec;
  for (std::size_t place = 0; place < order_.size(); ++place)
    spec.gradients.push_back(GradientOf(static_cast<int>(place)));
  if (!team_.joins_norms())
    for (const graph::Parameter& p : graph_.parameters())
      if (p.running_statistic()) spec.averages.push_back(p.value);
  spec.bucket_bytes = BucketBytes(config);
  spec.transport = format_;
  return spec;
}

const graph::Parameter& DistributedGradients::ParameterAt(std::size_t place) const {
  return graph_.parameters()[static_cast<std::size_t>(order_[place])];
}
const Tensor& DistributedGradients::GradientOf(int place) const {
  return ParameterAt(static_cast<std::size_t>(place)).gradient;
}

// Called by the graph from within the backward pass. Every process has to hand gradients over in
// the same order, which the check makes sure of.
void DistributedGradients::Reduce(const std::vector<int>& parameters) {
  // A pass that could not be recorded is repeated from its start.
  if (parameters.front() == order_.front()) taken_ = 0;
  for (const int parameter : parameters) {
    ADA_CHECK(taken_ < order_.size() && order_[taken_] == parameter);
    const int place = static_cast<int>(taken_++);
    in_pass_ ? in_pass_->Take(place) : TakeOnHost(place);
  }
}

// One buffer is enough for all gradients: Add copies what it needs before it returns.
void DistributedGradients::TakeOnHost(int place) {
  const Tensor& gradient = GradientOf(place);
  host_.resize(static_cast<std::size_t>(gradient.shape.numel()));
  backend_.Download(host_.data(), gradient.data, gradient.bytes());
  if (scales_.empty()) return on_host_->Add(place, host_.data(), scale_);
  // Exactly the codes, which a scale and its inverse may miss by a bit: ties decide by that.
  const auto at = static_cast<std::size_t>(place);
  for (float& value : host_) {
    value *= scales_[at];
    if (!reduction_.exempt[at] && std::isfinite(value)) value = RoundTo(reduction_.format, value);
  }
  on_host_->Add(place, host_.data());
}

// The sum of gradient `place`, without its scale.
void DistributedGradients::TakeSum(int place) {
  if (scales_.empty()) return on_host_->Take(place, host_.data(), scale_);
  on_host_->Take(place, host_.data());
  const auto largest = static_cast<float>(reduction_.format.largest());
  const float inverse = 1.0f / scales_[static_cast<std::size_t>(place)];
  std::int64_t saturated = 0;
  for (float& value : host_) {
    saturated += std::fabs(value) >= largest;
    value *= inverse;
  }
  saturated_[static_cast<std::size_t>(place)] = saturated;
}

void DistributedGradients::Finish() {
  ADA_CHECK(taken_ == order_.size());
  taken_ = 0;
  if (in_pass_) return in_pass_->Finish();
  on_host_->Finish();
  saturated_.resize(scales_.size());
  for (std::size_t place = 0; place < order_.size(); ++place) {
    const Tensor& gradient = GradientOf(static_cast<int>(place));
    host_.resize(static_cast<std::size_t>(gradient.shape.numel()));
    TakeSum(static_cast<int>(place));
    backend_.Upload(gradient.data, host_.data(), gradient.bytes());
  }
}

bool DistributedGradients::FinishOnHost(const backend::Pass& pass, std::int64_t rows,
                                        std::int64_t whole) {
  if (!on_host_) return false;
  JoinStatistics(rows, whole);
  Finish();
  graph_.FinishGradients(pass);
  return true;
}

// The means over processes, by their images; nothing where all have the same.
void DistributedGradients::JoinStatistics(std::int64_t rows, std::int64_t whole) {
  if (team_.joins_norms()) return;
  std::vector<float> values;
  const auto share = static_cast<float>(static_cast<double>(rows) / static_cast<double>(whole));
  for (const graph::Parameter& p : graph_.parameters()) {
    if (!p.running_statistic()) continue;
    for (const float value : HostValues(p.value, backend_)) values.push_back(value * share);
  }
  if (values.empty()) return;
  parallel::SumOverRanks(team_.world().small(), values);
  std::size_t at = 0;
  for (const graph::Parameter& p : graph_.parameters()) {
    if (!p.running_statistic()) continue;
    backend_.Upload(p.value.data, values.data() + at, p.value.bytes());
    at += static_cast<std::size_t>(p.numel());
  }
}

DistributedGradients::Transport DistributedGradients::LostInTransport() {
  std::vector<TensorStats> mine;
  if (in_pass_) mine = in_pass_->Lost();
  for (std::size_t place = mine.size(); place < order_.size(); ++place)
    mine.push_back(on_host_->lost(static_cast<int>(place)));
  for (std::size_t place = 0; place < scales_.size(); ++place)
    RemoveScale(static_cast<double>(scales_[place]), mine[place]);
  return {ByLayer(mine, scales_), format_ != kFp32 ? format_ : reduction_.format, scale_};
}

// Parameters of one layer lie next to each other in the order, so their counts are joined while
// they are walked through. What was not counted takes no part.
std::vector<DistributedGradients::Lost> DistributedGradients::ByLayer(
    const std::vector<TensorStats>& mine, const std::vector<float>& scales) {
  const std::vector<TensorStats> all = parallel::GatherAll(team_.all(), mine);
  std::vector<Lost> lost;
  std::int64_t largest = 0;  // values of the gradient whose scale the layer has
  for (std::size_t place = order_.size(); place-- > 0;) {  // layers in forward order
    const std::string& layer = ParameterAt(place).layer;
    TensorStats total = all[place];
    for (std::size_t at = place + order_.size(); at < all.size(); at += order_.size())
      total = CombinedStats(total, all[at]);
    if (total.numel == 0 && !scales.empty()) continue;
    const float scale = scales.empty() ? 1 : scales[place];
    if (lost.empty() || lost.back().layer != layer) {
      lost.push_back({layer, total, scale});
      largest = total.numel;
      continue;
    }
    lost.back().stats = CombinedStats(lost.back().stats, total);
    if (total.numel > largest) largest = total.numel, lost.back().scale = scale;
  }
  return lost;
}

}  // namespace ada::step
