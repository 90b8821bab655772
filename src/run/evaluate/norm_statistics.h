// evaluate.recompute_batch_norm: for the time of an evaluation batch norms use mean and variance of
// the training images instead of the running averages.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "run/assemble/assemble.h"
#include "step/team.h"
#include "telemetry/log.h"

namespace ada::run {

// Whether evaluations recompute the statistics of batch norms.
bool RecomputesNorms(const config::Config& config);

// A training graph that shares the parameters of `share`, without the policy's rules, because it
// only observes. Its batch size is that of one process's part of a batch.
std::unique_ptr<graph::Graph> StatisticsGraph(const config::Config& config, const Shape& image,
                                              backend::Backend& backend, const graph::Graph& share,
                                              const step::Team& team = step::Team::OfOne());

// A session makes one for each set of weights that it evaluates, and calls Recompute before an
// evaluation and Restore after it. In between, checkpoints must not be written, since the averages
// of training are not where they belong.
class NormStatistics {
 public:
  // `graph` trains, and its parameters are those that are evaluated. All must outlive it; it holds
  // one batch of loaders' images at a time. Each process of the team passes its part of every
  // batch; their statistics are averaged, weighted by their numbers of images.
  NormStatistics(const config::Config& config, const RunData& data, graph::Graph& graph,
                 backend::Backend& backend, step::Team& team = step::Team::OfOne());

  // Passes all training images through the network in training mode (batch statistics, rounding and
  // dropout), neither augmented nor shuffled, in batches of the training's size, and stores in
  // place of the running averages the mean over the batches, weighted by their images, of their
  // mean and variance (of n - 1 values). With batches of one size this is what
  // torch.optim.swa_utils.update_bn computes. A norm whose momentum is 0 keeps its statistics.
  // A channel is averaged over the batches in which its statistics are finite; RecomputeShown
  // warns where there are others.
  //
  // evaluate.recompute_batch_norm: reference: instead the mean, over the batches, of the running
  // averages after each of them, which start from those of training, as the recalculation in
  // ChainerCV's example does it. `after_batch` is told how many images are done. Returns the
  // unusable images that this process left out; DataError if there are no others.
  std::vector<data::BrokenImage> Recompute(
      const std::function<void(std::int64_t images)>& after_batch = {});
  // Recompute with a progress line "batch norms", followed by `of`, if `progress` is set.
  std::vector<data::BrokenImage> RecomputeShown(telemetry::Log& log, bool progress,
                                                const std::string& of = "");
  // Puts the running averages of training back.
  void Restore();

 private:
  struct Statistic {
    Tensor running;
    std::vector<float> trained;  // by channel
    std::vector<double> sum;
  };
  struct Norm {
    std::string layer;
    double momentum = 0;
    Statistic mean, variance;
    std::vector<double> weights;  // by channel: of the batches in the sums

    std::vector<std::vector<double>*> sums() { return {&mean.sum, &variance.sum, &weights}; }
  };
  void Reset(Norm& norm);
  void AddBatch(double weight);
  void JoinSums(double& weights);

  const config::Config& config_;
  const RunData& data_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  step::Team& team_;
  bool reference_;
  std::vector<Norm> norms_;
  std::vector<std::string> not_finite_;  // norms that lack batches, of the last Recompute
};

// For an evaluation without a run: does nothing unless evaluate.recompute_batch_norm asks for it.
// Makes a training network that shares the parameters of `evaluated` for the time it takes. Warns
// of images that are left out.
void RecomputeNorms(const config::Config& config, const RunData& data,
                    const graph::Graph& evaluated, backend::Backend& backend, telemetry::Log& log,
                    bool progress);

}  // namespace ada::run
