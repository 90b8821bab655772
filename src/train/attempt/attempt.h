// All that is known of one attempt when it is over: what the logs get.
#pragma once
#include <vector>

#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "train/attempt/batch_counts.h"
#include "train/attempt/step_result.h"
#include "train/distributed/distributed_gradients.h"

namespace ada::train {

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
