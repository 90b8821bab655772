#include "train/evaluate/norm_statistics.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "graph/network/shapes.h"
#include "telemetry/progress.h"
#include "train/batches/batches.h"
#include "train/checkpoint/weight_values.h"

namespace ada::train {
namespace {

// The momentum of the batch norm that a running statistic belongs to.
double MomentumOf(const graph::Network& network, const graph::Parameter& parameter) {
  for (const graph::Node& node : network.nodes)
    if (node.config.name == parameter.layer) return node.config.momentum;
  throw InternalError("no layer of parameter " + parameter.name);
}

void Put(const Tensor& tensor, const std::vector<float>& values, backend::Backend& backend) {
  backend.Upload(tensor.data, values.data(), tensor.bytes());
}

}  // namespace

bool RecomputesNorms(const config::Config& config) {
  return config.evaluate.batch_norm != config::BatchNormStatistics::kRunning;
}

std::unique_ptr<graph::Graph> StatisticsGraph(const config::Config& config, const Shape& image,
                                              backend::Backend& backend, const graph::Graph& share,
                                              const Team& team) {
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  graph::GraphSpec spec = TrainGraph(config, image, *policy);
  spec.rule_for = nullptr;
  spec.input.n = team.LargestShare(spec.input.n);
  return graph::Graph::Build(spec, backend, &share);
}

NormStatistics::NormStatistics(const config::Config& config, const RunData& data,
                               graph::Graph& graph, backend::Backend& backend, Team& team)
    : config_(config),
      data_(data),
      graph_(graph),
      backend_(backend),
      team_(team),
      reference_(config.evaluate.batch_norm == config::BatchNormStatistics::kReference) {
  const graph::Network network = graph::Resolve(config.model, data.image, config.task);
  for (const graph::Parameter& p : graph.parameters()) {
    if (p.gradient) continue;
    const double momentum = MomentumOf(network, p);
    if (momentum > 0) statistics_.push_back({p.value, momentum, {}, {}});
  }
}

// The running average moved from what it was towards the batch by `momentum`: from zero, it tells
// the batch.
// It is called after each forward pass, when the backend has finished it. In the reference mode the
// averages go on from batch to batch; otherwise they are set to zero again.
void NormStatistics::AddBatch(double weight) {
  for (Statistic& s : statistics_) {
    const std::vector<float> now = HostValues(s.running, backend_);
    for (std::size_t c = 0; c < now.size(); ++c)
      s.sum[c] += weight * static_cast<double>(now[c]) / (reference_ ? 1 : s.momentum);
    if (!reference_) Put(s.running, std::vector<float>(now.size()), backend_);
  }
}

// In the order of processes.
// Sums travel as doubles, with the weight in front, in one message.
void NormStatistics::JoinSums(double& weights) {
  std::vector<double> mine = {weights};
  for (const Statistic& s : statistics_) mine.insert(mine.end(), s.sum.begin(), s.sum.end());
  const std::vector<double> all = parallel::GatherAll(team_.all(), mine);
  std::vector<double> total(mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) total[i % mine.size()] += all[i];
  weights = total[0];
  auto from = total.begin() + 1;
  for (Statistic& s : statistics_) {
    std::copy_n(from, s.sum.size(), s.sum.begin());
    from += static_cast<std::ptrdiff_t>(s.sum.size());
  }
}

std::vector<data::BrokenImage> NormStatistics::Recompute(
    const std::function<void(std::int64_t images)>& after_batch) {
  std::vector<data::BrokenImage> left_out;
  if (statistics_.empty()) return left_out;  // nothing to be found
  for (Statistic& s : statistics_) {
    s.trained = HostValues(s.running, backend_);
    s.sum.assign(s.trained.size(), 0);
    if (!reference_) Put(s.running, std::vector<float>(s.trained.size()), backend_);
  }
  data::LoaderSpec spec = EvaluationLoader(config_, data_);
  spec.batch_size = config_.data.batch_size / config_.train.accumulate;
  const std::unique_ptr<Batches> made =
      MakeBatchesOfTeam(backend_, data_.train, spec, Residence::kHost, config_, team_, 1);
  Batches& batches = *made;
  backend::Pass pass;
  pass.seed = config_.seed;
  graph_.RefreshWeights(pass);
  double weights = 0;
  std::int64_t images = 0;
  for (std::int64_t i = 0; i < batches.batches_per_epoch(); ++i, ++pass.draw) {
    pass.rows = batches.Next();
    left_out.insert(left_out.end(), batches.broken().begin(), batches.broken().end());
    pass.whole_rows = batches.whole_rows();
    pass.first_row = team_.ShareOf(pass.whole_rows).first;
    // The last images may be fewer than there are processes, and those of one process may all be
    // broken. A process without a row takes no part in the pass, and the others must not wait for
    // it in their batch norms, nor for its part of an operand's amax (whole_rows of 0).
    const std::vector<int> rows = parallel::GatherAll(team_.all(), pass.rows);
    std::optional<Team::LocalNormsScope> alone;
    if (std::find(rows.begin(), rows.end(), 0) != rows.end()) {
      alone.emplace(team_);
      pass.whole_rows = 0;
    }
    if (pass.rows == 0) continue;
    pass.loss_terms = batches.terms();
    batches.Feed(graph_, 0, pass.rows);
    graph_.Forward(pass);
    backend_.Synchronize();
    const double weight = reference_ ? 1 : pass.rows;
    AddBatch(weight);
    weights += weight;
    images += pass.rows;
    if (after_batch) after_batch(images);
  }
  JoinSums(weights);
  if (weights == 0)
    throw DataError("evaluate.recompute_batch_norm: none of the training images can be read" +
                    (left_out.empty() ? "" : "; the first: " + left_out.front().message));
  for (const Statistic& s : statistics_) {
    std::vector<float> values(s.sum.size());
    for (std::size_t c = 0; c < values.size(); ++c)
      values[c] = static_cast<float>(s.sum[c] / weights);
    Put(s.running, values, backend_);
  }
  return left_out;
}

std::vector<data::BrokenImage> NormStatistics::RecomputeShown(telemetry::Log& log, bool progress,
                                                              const std::string& of) {
  telemetry::EvaluationProgress line(log, progress, "recomputing batch norms" + of,
                                     data_.train.images());
  return Recompute([&](std::int64_t images) { line.Update(images); });
}

// May be called only after Recompute, which keeps the averages of training.
void NormStatistics::Restore() {
  for (const Statistic& s : statistics_) Put(s.running, s.trained, backend_);
}

void RecomputeNorms(const config::Config& config, const RunData& data,
                    const graph::Graph& evaluated, backend::Backend& backend, telemetry::Log& log,
                    bool progress) {
  if (!RecomputesNorms(config)) return;
  const auto graph = StatisticsGraph(config, data.image, backend, evaluated);
  NormStatistics statistics(config, data, *graph, backend);
  for (const data::BrokenImage& image : statistics.RecomputeShown(log, progress))
    log.Warning(data::LeftOutText("train", image));
}

}  // namespace ada::train
