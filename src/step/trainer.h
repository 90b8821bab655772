// The algorithm: one training step, from a batch to new weights. Everything that is not the
// algorithm (epochs, evaluation, checkpoints, the terminal) is the Session's.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "config/config.h"
#include "graph/graph.h"
#include "io/run_in_parallel.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "step/accumulated_gradients.h"
#include "step/attempt/attempt.h"
#include "step/attempt/tensor_scales.h"
#include "step/batches/batches.h"
#include "step/distributed_gradients.h"
#include "step/step_observer.h"

namespace ada::step {

// Seconds since the last time they were taken, by phase. Where a device works asynchronously, the
// time spent waiting for it counts as backward.
struct PhaseSeconds {
  double data = 0, forward = 0, backward = 0, update = 0, log = 0;
};

// Held by the trainer, which starts it in each step and tells it where one phase ends.
class PhaseClock {
 public:
  void Start() { start_ = Now(); }
  // Adds the time since the last lap, or the start, to a phase.
  void Lap(double PhaseSeconds::*phase) {
    const double now = Now();
    seconds_.*phase += now - std::exchange(start_, now);
  }
  // Returns the seconds so far and begins to count from 0.
  PhaseSeconds Take() { return std::exchange(seconds_, PhaseSeconds{}); }

 private:
  static double Now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double>(since).count();
  }

  PhaseSeconds seconds_;
  double start_ = 0;
};

// One for each session (or fork), which calls Step for each attempt. It owns none of its parts and
// writes no files; in a run of several processes Step is collective and returns the same result in
// all. Its own state is a Position; all else that a checkpoint needs belongs to its parts.
class Trainer {
 public:
  // All parts must outlive the trainer. `total_steps`: of the whole run, for the schedule.
  Trainer(const config::Config& config, graph::Graph& graph, Batches& batches,
          scaling::Policy& policy, optim::Optimizer& optimizer, AttemptLog& log,
          std::vector<StepObserver*> observers, std::int64_t total_steps,
          DistributedGradients& distributed, Team& team);

  // Makes one attempt: takes the next batch, computes its gradients, updates the masters or leaves
  // them, and logs. Throws what reading the batch throws (DataError).
  StepResult Step();

  std::int64_t steps() const { return step_; }
  std::int64_t skips_in_a_row() const { return skips_in_a_row_; }
  std::int64_t retries() const { return retry_.retries(); }        // of the present update
  std::int64_t schedule_steps() const { return schedule_steps_; }  // steps the schedule has made
  std::int64_t steps_per_epoch() const { return steps_per_epoch_; }
  // Returns the seconds so far and begins to count from 0.
  PhaseSeconds TakeSeconds() { return clock_.Take(); }
  // Goes on after an earlier process; policy, optimizer, weights and tensor scales are restored.
  struct Position {
    std::int64_t step = 0, skips_in_a_row = 0, retries = 0, schedule_steps = 0;
    std::int64_t set_back = 0;  // by so many steps the learning rate's schedule lags
  };
  // tensors: SaveScales of that process's trainer, among others.
  void Resume(const Position& position,
              const std::map<std::string, scaling::StateMap>& tensors = {});
  // What a checkpoint keeps of the sums of gradients (scaling fp8_lm), by name.
  std::map<std::string, scaling::StateMap> SaveScales() const { return accumulated_.SaveScales(); }

 private:
  backend::Pass MakePass(const StepResult& result) const;
  void SendLayerScales();
  void Gradients(int rows, backend::Pass pass);
  void Work(const backend::Pass& pass, bool last);
  graph::Graph::Update PlannedUpdate();
  void AskForUpdate(const backend::Pass& pass);
  void JoinCounts(const backend::Pass& pass);
  bool WantsCounts(const StepResult& result, const backend::Pass& pass) const;
  backend::LossResult Loss();
  void Update(Attempt& attempt, const backend::Pass& pass);
  backend::UpdatePlan PlanFor(const StepResult& result, scaling::Action on_overflow) const;
  scaling::StepOutcome OutcomeOf(StepResult& result, const backend::UpdateOutcome& outcome,
                                 const backend::Pass& pass);
  void Finish(Attempt& attempt);

  const config::Config& config_;
  graph::Graph& graph_;
  Batches& batches_;
  scaling::Policy& policy_;
  optim::Optimizer& optimizer_;
  AttemptLog& log_;
  const LogSchedule schedule_;
  StepObservers observers_;
  BatchCounts counts_;
  const AttemptFacts facts_;
  DistributedGradients& distributed_;
  AccumulatedGradients accumulated_;
  Team& team_;
  std::int64_t terms_ = 0;  // of the current batch, in all processes
  bool joined_ = false;     // the current pass's counts are those of all processes
  // For the current attempt: whether only the device needs results between its first pass and its
  // update; whether the host fetches the layers' scalers.
  bool runs_as_one_ = false, wants_scalers_ = false;
  backend::UpdatePlan plan_;
  std::int64_t steps_per_epoch_, total_steps_;
  std::int64_t step_ = 0, skips_in_a_row_ = 0, schedule_steps_ = 0, set_back_ = 0;
  scaling::RetryRule retry_;
  scaling::StatsRequest request_;  // of the current attempt
  double sanitize_limit_;          // largest value of the gradients' format
  TensorScales tensor_scales_;
  std::vector<HalvedMu> halved_;  // by the current attempt
  PhaseClock clock_;
};

}  // namespace ada::step
