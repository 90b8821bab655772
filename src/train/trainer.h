// The algorithm: one training step, from a batch to new weights. Everything that is not the
// algorithm (epochs, evaluation, checkpoints, the terminal) is run.cpp's.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "optim/schedule.h"
#include "scaling/policy.h"
#include "train/step_log.h"

namespace ada::train {

// What one attempt did.
struct StepResult {
  std::int64_t step = 0, epoch = 0;  // from 1
  double loss = 0, accuracy = 0, lr = 0, scale = 1, grad_norm = 0;
  int images = 0;
  bool overflow = false, skipped = false;
  bool logged = false;
};

// Seconds since the last time they were taken, by phase.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, update = 0, log = 0;
};

class Trainer {
 public:
  // All parts must outlive the trainer. `total_steps`: of the whole run, for the schedule.
  Trainer(const config::Config& config, graph::Graph& graph, data::Loader& loader,
          scaling::Policy& policy, optim::Optimizer& optimizer, StepLog& log,
          std::int64_t total_steps);

  StepResult Step();

  std::int64_t steps() const { return step_; }
  std::int64_t skips_in_a_row() const { return skips_in_a_row_; }
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  PhaseSeconds TakeSeconds();
  // Goes on after `step` attempts of an earlier process; policy, optimizer and weights are
  // restored.
  void Resume(std::int64_t step, std::int64_t skips_in_a_row);

 private:
  backend::LossResult Gradients(const data::Batch& batch, const StepResult& result);
  void Lap(double& phase);

  const config::Config& config_;
  graph::Graph& graph_;
  data::Loader& loader_;
  scaling::Policy& policy_;
  optim::Optimizer& optimizer_;
  StepLog& log_;
  optim::ScheduleSpec schedule_;
  std::int64_t steps_per_epoch_, total_steps_;
  std::int64_t step_ = 0, skips_in_a_row_ = 0;
  bool weights_changed_ = true;
  PhaseSeconds seconds_;
  double lap_start_ = 0;
};

}  // namespace ada::train
