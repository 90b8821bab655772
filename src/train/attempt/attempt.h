// One attempt: what it did, what was counted in its passes, and all that is known of it when it is
// over.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

}  // namespace ada::train
