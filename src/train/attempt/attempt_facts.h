// Facts of an attempt that the policy and the end of the run go by, found in what was counted.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "scaling/policies/policy.h"
#include "train/attempt/attempt.h"

namespace ada::train {

// Which layer's own gradients overflowed, for policies that keep a scale of every layer
// (layerwise_dynamic): known on the host when an attempt is over, and to the optimizer before.

// A rounding that counts for a layer that has a scale: of its dx or dw; the logit gradient's counts
// for the last layer, whose scale it carries.
struct LayerRounding {
  std::size_t point;  // of the graph's roundings
  std::string layer;
  float most;  // the largest magnitude that stays finite when it is rounded
};
std::vector<LayerRounding> LayerRoundings(const graph::Graph& graph);
// The same roundings as the backend has them: the optimizer watches their statistics to know of an
// overflow before it updates.
std::vector<backend::WatchedRounding> WatchedRoundings(const graph::Graph& graph);

// Fills layer_overflow for every layer that has a scale. All layers, where the attempt overflowed
// and none can be named.
void FillLayerOverflow(const graph::Graph& graph, const std::vector<LayerRounding>& roundings,
                       const BatchCounts& counts, scaling::StepOutcome& attempt);

// Facts of an attempt that the policy and the end of the run go by, found in what was counted.

// One for each trainer, which calls it after every attempt when the counts are on the host.
class AttemptFacts {
 public:
  // Both outlive it.
  AttemptFacts(const graph::Graph& graph, const BatchCounts& counts);

  // What the policy has asked for: values of the rounded dx above and below Pass::edge; which
  // layers' own gradients are not finite.
  void Fill(const scaling::StatsRequest& request, scaling::StepOutcome& attempt) const;
  NotFiniteTensor FirstNotFinite() const;
  // Exceptions of the authors' program in this attempt (scaling.reference), one line; or nothing.
  std::string DecisionErrors() const;

 private:
  const graph::Graph& graph_;
  const BatchCounts& counts_;
  std::vector<LayerRounding> layer_roundings_;
};

}  // namespace ada::train
