// Sums of a batch's micro-batches in a format of few bits (precision.accumulated_gradients): each
// part of a weight gradient is added to what is stored, and the sum rounded once, as a buffer of
// gradients in that format makes it.
#pragma once
#include <cstdint>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "step/distributed_gradients.h"

namespace ada::step {

// One for each trainer. The sums live within a batch alone; without the key nothing is done.
class AccumulatedGradients {
 public:
  // All must outlive it.
  AccumulatedGradients(const config::Config& config, graph::Graph& graph,
                       DistributedGradients& distributed);

  bool active() const { return !sums_.empty(); }
  // To be called after each micro-batch's passes, whose draw and `accumulate` tell them apart: adds
  // its gradients to the sums. They become zero, since the next pass adds to them; the last one's
  // (`last`) become the sums.
  void Take(const backend::Pass& pass, bool last);
  // What the last batch's additions lost, by layer and of all processes (collective). As of masters
  // (UpdateCounts): `underflow`: a part that was not zero left the sum as it was.
  DistributedGradients::Transport Lost();

 private:
  const graph::Graph& graph_;
  DistributedGradients& distributed_;
  NumberFormat format_;
  bool stochastic_ = false;
  std::vector<std::vector<float>> sums_;  // as gradients are completed
  std::vector<float> part_;
  std::vector<TensorStats> lost_;  // of each
};

}  // namespace ada::step
