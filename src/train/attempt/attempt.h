// One attempt: what it did, what was counted in its passes, and the facts of it that logs, policy
// and the end of the run go by.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "train/distributed/distributed_gradients.h"

namespace ada::train {

// What one attempt did, as the rest of a run goes by it.

// The first rounding, in the order of execution, whose largest magnitude is or becomes infinite.
struct NotFiniteTensor {
  std::string layer, tensor;  // layer empty: there is none
  float largest = 0;
  int rank = -1;         // the process whose part of the tensor has it; -1: all have the same
  bool outgrew = false;  // as telemetry::FirstNotFinite has it
};

// Filled by the trainer during Step and returned to the session; the logs get the same through
// Attempt. In a run of several processes it describes the whole batch.
struct StepResult {
  std::int64_t step = 0, epoch = 0;  // from 1
  double loss = 0, accuracy = 0, lr = 0, scale = 1, grad_norm = 0;
  double location_loss = 0;  // detection: the part of `loss` that is of locations
  int images = 0;            // of all processes
  std::int64_t terms = 0;    // over which the loss is a mean
  bool overflow = false, skipped = false;
  bool retried = false;    // skipped, and the next attempt is the same update again
  bool sanitized = false;  // not finite, and updated with cleaned gradients all the same
  bool logged = false;
  bool rate_moves = false;     // lr may differ from the last step's without a milestone between
  NotFiniteTensor not_finite;  // looked for where a weight gradient or the loss is not finite
  std::string error;           // not empty: the policy ends the run, and why
};

// What was counted in the passes of a batch: where it is one micro-batch the graph's own counts,
// else those of all micro-batches added up.

// Owned by the trainer. As long as Add is never called it hands on the graph's counts and costs
// nothing; after the first Add the sums are what counts. References that it returns are valid until
// the next Add or pass.
class BatchCounts {
 public:
  explicit BatchCounts(const graph::Graph& graph) : graph_(graph) {}

  // Adds the counts of a micro-batch that was collected; not called where there is one.
  void Add(const backend::Pass& pass);

  // By place in the graph's list of roundings.
  const TensorStats& StatsOf(std::size_t point) const;
  const ExponentBins& BinsOf(std::size_t point) const;
  const BlockCounts& BlocksOf(std::size_t point) const;
  int LargestAt(std::size_t point) const;  // RoundingPoint::largest_at

 private:
  const graph::Graph& graph_;
  std::vector<TensorStats> sums_;
  std::vector<BlockCounts> block_sums_;  // of roundings in block-scaled formats
  std::vector<ExponentBins> bin_sums_;   // where histograms are taken
  std::vector<int> largest_at_;
};

// All that is known of one attempt when it is over: what the logs get.

// Made on the stack by Trainer::Step and handed to StepLog::Write; `counts` are the trainer's and
// are overwritten by the next attempt.
struct Attempt {
  explicit Attempt(const BatchCounts& counted) : counts(counted) {}

  const BatchCounts& counts;
  StepResult result;
  scaling::ScaleUpdate update;  // what the policy made of it
  // In steps whose updates are counted (LogSchedule::CountsUpdates); empty where it is skipped.
  std::vector<optim::KeptStats> kept = {};
  // In logged steps, what gradients lost between processes (parallel.gradients).
  DistributedGradients::Transport transport = {};
};

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
