// Delayed scaling of tensors (precision.tensor_scaling): from the largest magnitudes of a step
// follow the scales of the next one.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace ada::step {

// Held by the trainer. The histories themselves belong to the graph, and so to its checkpoints.
class TensorScales {
 public:
  explicit TensorScales(graph::Graph& graph)
      : graph_(graph), amax_(graph.scaled_tensors().size()) {}

  bool empty() const { return amax_.empty(); }
  // Records the largest unscaled magnitude of each tensor in a pass whose counts were collected;
  // `first`: the first one of a batch. A NaN is kept.
  void Observe(bool first);
  // Computes the scales of the next step and sends them to the backend.
  void Update();

 private:
  graph::Graph& graph_;
  std::vector<float> amax_;  // by scaled tensor, of the current batch
};

}  // namespace ada::step
