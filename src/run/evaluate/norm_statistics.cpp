// Runs forward passes over training images, joins each norm's statistics over batches and
// processes, and puts them in place.
#include "run/evaluate/norm_statistics.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "error.h"
#include "graph/network/shapes.h"
#include "io/text.h"
#include "step/batches/batches.h"
#include "step/specs.h"
#include "step/weight_values.h"
#include "telemetry/progress.h"

namespace ada::run {
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
                                              const step::Team& team) {
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  graph::GraphSpec spec = step::TrainGraph(config, image, *policy);
  spec.rule_for = nullptr;
  spec.input.n = team.LargestShare(spec.input.n);
  return graph::Graph::Build(spec, backend, &share);
}

NormStatistics::NormStatistics(const config::Config& config, const RunData& data,
                               graph::Graph& graph, backend::Backend& backend, step::Team& team)
    : config_(config),
      data_(data),
      graph_(graph),
      backend_(backend),
      team_(team),
      reference_(config.evaluate.batch_norm == config::BatchNormStatistics::kReference) {
  const graph::Network network = graph::Resolve(config.model, data.image, config.task);
  for (const graph::Parameter& p : graph.parameters()) {
    if (!p.running_statistic()) continue;
    const double momentum = MomentumOf(network, p);
    if (momentum == 0) continue;
    if (norms_.empty() || norms_.back().layer != p.layer)
      norms_.push_back({p.layer, momentum, {}, {}, {}});
    (p.part == "running_mean" ? norms_.back().mean : norms_.back().variance).running = p.value;
  }
}

// The running average moved from what it was towards the batch by `momentum`: from zero, it tells
// the batch. Where the batch's statistics are not finite it does not move (backend::MoveRunning),
// which the sign of the zero tells: a variance is never -0.
void NormStatistics::Reset(Norm& norm) {
  const std::vector<float> zeros(norm.weights.size(), -0.0f);
  Put(norm.mean.running, zeros, backend_);
  Put(norm.variance.running, zeros, backend_);
}

// It is called after each forward pass, when the backend has finished it. In the reference mode the
// averages go on from batch to batch; otherwise they are set to zero again.
void NormStatistics::AddBatch(double weight) {
  for (Norm& norm : norms_) {
    const std::vector<float> means = step::HostValues(norm.mean.running, backend_);
    const std::vector<float> variances = step::HostValues(norm.variance.running, backend_);
    for (std::size_t c = 0; c < means.size(); ++c) {
      if (!reference_ && variances[c] == 0 && std::signbit(variances[c])) continue;
      const double share = weight / (reference_ ? 1 : norm.momentum);
      norm.mean.sum[c] += share * static_cast<double>(means[c]);
      norm.variance.sum[c] += share * static_cast<double>(variances[c]);
      norm.weights[c] += weight;
    }
    if (!reference_) Reset(norm);
  }
}

// In the order of processes.
// Sums travel as doubles, with the weight in front, in one message.
void NormStatistics::JoinSums(double& weights) {
  std::vector<double> mine = {weights};
  for (Norm& norm : norms_)
    for (const auto* part : norm.sums()) mine.insert(mine.end(), part->begin(), part->end());
  const std::vector<double> all = parallel::GatherAll(team_.all(), mine);
  std::vector<double> total(mine.size());
  for (std::size_t i = 0; i < all.size(); ++i) total[i % mine.size()] += all[i];
  weights = total[0];
  auto from = total.begin() + 1;
  for (Norm& norm : norms_)
    for (auto* part : norm.sums()) {
      std::copy_n(from, part->size(), part->begin());
      from += static_cast<std::ptrdiff_t>(part->size());
    }
}

std::vector<data::BrokenImage> NormStatistics::Recompute(
    const std::function<void(std::int64_t images)>& after_batch) {
  std::vector<data::BrokenImage> left_out;
  if (norms_.empty()) return left_out;  // nothing to be found
  for (Norm& norm : norms_) {
    for (Statistic* s : {&norm.mean, &norm.variance}) {
      s->trained = step::HostValues(s->running, backend_);
      s->sum.assign(s->trained.size(), 0);
    }
    norm.weights.assign(norm.mean.trained.size(), 0);
    if (!reference_) Reset(norm);
  }
  data::LoaderSpec spec = EvaluationLoader(config_, data_);
  spec.batch_size = config_.data.batch_size / config_.train.accumulate;
  const std::unique_ptr<step::Batches> made = step::MakeBatchesOfTeam(
      backend_, data_.train, spec, step::Residence::kHost, config_, team_, 1);
  step::Batches& batches = *made;
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
    std::optional<step::Team::LocalNormsScope> alone;
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
  not_finite_.clear();
  for (const Norm& norm : norms_) {
    for (const Statistic* s : {&norm.mean, &norm.variance}) {
      std::vector<float> values(s->sum.size());
      for (std::size_t c = 0; c < values.size(); ++c)
        values[c] = static_cast<float>(s->sum[c] / norm.weights[c]);
      Put(s->running, values, backend_);
    }
    const auto channels = std::count_if(norm.weights.begin(), norm.weights.end(),
                                        [&](double weight) { return weight < weights; });
    if (channels > 0) not_finite_.push_back(norm.layer + " (" + Counted(channels, "channel") + ")");
  }
  return left_out;
}

std::vector<data::BrokenImage> NormStatistics::RecomputeShown(telemetry::Log& log, bool progress,
                                                              const std::string& of) {
  telemetry::EvaluationProgress line(log, progress, "recomputing batch norms" + of,
                                     data_.train.images());
  // Parts of the processes are of about one size.
  auto left_out = Recompute([&](std::int64_t images) {
    line.Update(std::min(images * team_.ranks(), data_.train.images()));
  });
  if (!not_finite_.empty())
    log.Warning("recomputing batch norms" + of +
                ": batches whose mean or variance is not finite are left out of those of " +
                FirstNames(not_finite_, 5) + "; where none is left they are nan");
  return left_out;
}

// May be called only after Recompute, which keeps the averages of training.
void NormStatistics::Restore() {
  for (const Norm& norm : norms_)
    for (const Statistic* s : {&norm.mean, &norm.variance}) Put(s->running, s->trained, backend_);
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

}  // namespace ada::run
