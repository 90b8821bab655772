// evaluate.recompute_batch_norm: mean and variance of batch norms from the training images instead
// of the running averages, for as long as an evaluation takes.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "telemetry/log.h"
#include "train/assemble/assemble.h"
#include "train/distributed/team.h"

namespace ada::train {

// Whether batch norms are evaluated with such statistics.
bool RecomputesNorms(const config::Config& config);

// The training graph on the parameters of `share`, without a policy's rules: it only looks. It
// holds the part of a batch that one process of the team passes.
std::unique_ptr<graph::Graph> StatisticsGraph(const config::Config& config, const Shape& image,
                                              backend::Backend& backend, const graph::Graph& share,
                                              const Team& team = Team::OfOne());

// A session makes one for each set of weights that it evaluates, and calls Recompute before an
// evaluation and Restore after it. In between, checkpoints must not be written, since the averages
// of training are not where they belong.
class NormStatistics {
 public:
  // `graph` trains, and its parameters are those that are evaluated. All must outlive it; it holds
  // one batch of loaders' images at a time. Each process of the team passes its part of
  // every batch; their statistics are weighted with their images.
  NormStatistics(const config::Config& config, const RunData& data, graph::Graph& graph,
                 backend::Backend& backend, Team& team = Team::OfOne());

  // Passes all training images through the network as it trains (batch statistics, its rounding and
  // dropout), neither augmented nor shuffled, as many at a time as training takes, and puts what it
  // finds where the running averages are: the mean over the batches, each weighted with its images,
  // of their mean and variance (of n - 1 values), which with batches of one size is what
  // torch.optim.swa_utils.update_bn computes. A norm whose momentum is 0 keeps its statistics.
  //
  // evaluate.recompute_batch_norm: reference: the mean, over the batches, of the running averages
  // after each of them, those of training still in them, as the recalculation in ChainerCV's
  // example gives it. `after_batch` is told how many images are done. Returns those that this
  // process left out because they cannot be used; DataError where there are no others.
  std::vector<data::BrokenImage> Recompute(
      const std::function<void(std::int64_t images)>& after_batch = {});
  // The same with a progress line "batch norms", with `of` after it, where `progress` says so.
  std::vector<data::BrokenImage> RecomputeShown(telemetry::Log& log, bool progress,
                                                const std::string& of = "");
  // The running averages are those of training again.
  void Restore();

 private:
  struct Statistic {
    Tensor running;
    double momentum = 0;
    std::vector<float> trained;  // by channel
    std::vector<double> sum;
  };
  void AddBatch(double weight);
  void JoinSums(double& weights);

  const config::Config& config_;
  const RunData& data_;
  graph::Graph& graph_;
  backend::Backend& backend_;
  Team& team_;
  bool reference_;
  std::vector<Statistic> statistics_;
};

// For an evaluation without a run: does nothing unless evaluate.recompute_batch_norm asks for it.
// Makes a network that trains, which shares the parameters of `evaluated`, for the time it takes.
// Warns of images that are left out.
void RecomputeNorms(const config::Config& config, const RunData& data,
                    const graph::Graph& evaluated, backend::Backend& backend, telemetry::Log& log,
                    bool progress);

}  // namespace ada::train
