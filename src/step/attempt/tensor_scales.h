// Scales of tensors that the host computes once a step: of earlier magnitudes (delayed scaling), or
// of weights from the bound on their updates (predicted).
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "optim/optimizer.h"

namespace ada::step {

// A predicted scale that was measured before a step. `predicted`: the bound that stood for the
// magnitude until then, after `steps` steps; steps 0: the first measurement.
struct MeasuredScale {
  std::string layer, operand;  // "fc", "forward.w"
  float largest = 0, predicted = 0, scale = 1;
  std::int64_t steps = 0;
};

// Held by the trainer. The histories themselves belong to the graph, and so to its checkpoints.
class TensorScales {
 public:
  // Both must outlive it.
  TensorScales(graph::Graph& graph, const optim::Optimizer& optimizer);

  bool empty() const { return amax_.empty(); }
  // To be called before the passes of a step: measures the weights whose predicted scale is due.
  std::vector<MeasuredScale> Measure(backend::Backend& backend);
  // Records the largest unscaled magnitude of each tensor in a pass whose counts were collected;
  // `first`: the first one of a batch. A NaN is kept.
  void Observe(bool first);
  // Computes the scales of the next step and sends them to the backend. lr: the learning rate of
  // the step's update; 0: there was none.
  void Update(double lr);

 private:
  // The weight of an operand with a predicted scale; null: the scale is delayed.
  struct Weight {
    const graph::Parameter* parameter = nullptr;
    double lr = 1;  // factor of the step's rate
  };

  graph::Graph& graph_;
  std::vector<float> amax_;      // by scaled tensor, of the current batch
  std::vector<Weight> weights_;  // by scaled tensor
};

}  // namespace ada::step
