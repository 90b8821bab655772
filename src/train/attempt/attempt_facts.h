// Facts of an attempt that the policy and the end of the run go by, found in what was counted.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"
#include "scaling/policies/policy.h"
#include "train/attempt/batch_counts.h"
#include "train/attempt/layer_overflow.h"
#include "train/attempt/step_result.h"

namespace ada::train {

// One for each trainer, which calls it after every attempt when the counts are on the host.
class AttemptFacts {
 public:
  // Both outlive it.
  AttemptFacts(const graph::Graph& graph, const BatchCounts& counts);

  // What the policy has asked for: values of the rounded dx above and below Pass::edge; which
  // layers' own gradients are not finite (layer_overflow.h).
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
