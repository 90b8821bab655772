// What is told of single steps: observers (probes, dumps) and the list of them that a trainer
// calls, which attempts are written down, and the log that a trainer tells of each.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "step/batches/batches.h"

namespace ada::step {

struct Attempt;

// Whether a step is one of those of an `every_*` key: step 1 and the multiples; 0: never.
bool IsDue(std::int64_t every, std::int64_t step);

// Which steps are written down, and how closely they are looked at for it. The trainer and the log
// each have one, and so decide alike. It refers to the configuration, which outlives it.
class LogSchedule {
 public:
  explicit LogSchedule(const config::Config& config) : config_(config) {}

  // A step of log.every, or one that is probed, dumped or has histograms.
  bool Logs(std::int64_t step) const;
  bool TakesHistograms(std::int64_t step) const;
  // A logged step whose tensors are counted: log.statistics is not empty.
  bool Counts(std::int64_t step) const;
  // A logged step whose updates are counted: they are in log.statistics, muon's, or masters or the
  // optimizer's state are not fp32.
  bool CountsUpdates(std::int64_t step) const;

 private:
  const config::Config& config_;
};

// The tensors that the events of a step name; layer empty: no such event, or it names none.
struct StepNews {
  bool skip = false, alert = false;
  std::string skip_layer, alert_layer;
};

// A trainer calls it after every attempt (record::StepLog).
class AttemptLog {
 public:
  virtual ~AttemptLog() = default;
  // Returns which of the events that dumps wait for happened in the step. OutputError where a log
  // cannot be written.
  virtual StepNews Write(const Attempt& attempt) = 0;
};

// One micro-batch as the graph was given it, on the host.
// Valid only during EndMicroBatch.
struct MicroBatch {
  Batches::Rows rows;
  backend::Pass pass;
};

// An observer of single steps, which sees the tensors of both passes and changes nothing that the
// run computes with. Implemented by Probe, Dump and OperandWhatIf. The order of calls in a due
// step: Begin, then for each micro-batch Observe for every tensor and EndMicroBatch, then End, and
// Conclude when the step is over. Observe is called while the tensor is in place: what is needed
// later must be copied.
class StepObserver : public graph::TensorObserver {
 public:
  virtual bool Due(std::int64_t step) const = 0;
  // Called before the first micro-batch, with the weights of the step in place. This function and
  // those below are called only in steps that are due.
  virtual void Begin(std::int64_t step, const backend::Pass& pass) = 0;
  // After both passes of a micro-batch.
  virtual void EndMicroBatch(const MicroBatch& batch) = 0;
  // After the last one: weight gradients are complete, neither clipped nor applied.
  virtual void End() = 0;
  // Called after the step was logged, with its events.
  virtual void Conclude(const StepNews&) {}
};

// All observers of a run; calls each only in the steps in which it is due.
// Owned by the trainer; the observers are the session's.
class StepObservers : private graph::TensorObserver {
 public:
  explicit StepObservers(std::vector<StepObserver*> all) : all_(std::move(all)) {}

  // To be called before all others in a step.
  void Choose(std::int64_t step) {
    due_.clear();
    for (StepObserver* observer : all_)
      if (observer->Due(step)) due_.push_back(observer);
  }
  void Begin(std::int64_t step, const backend::Pass& pass) {
    for (StepObserver* observer : due_) observer->Begin(step, pass);
  }
  // The observer to be used in the passes of the current step; null: none is due.
  graph::TensorObserver* active() { return due_.empty() ? nullptr : this; }
  void EndMicroBatch(const MicroBatch& batch) {
    for (StepObserver* observer : due_) observer->EndMicroBatch(batch);
  }
  void End() {
    for (StepObserver* observer : due_) observer->End();
  }
  void Conclude(const StepNews& news) {
    for (StepObserver* observer : due_) observer->Conclude(news);
  }

 private:
  void Observe(const graph::ObservedTensor& seen, const backend::Pass& pass) override {
    for (StepObserver* observer : due_) observer->Observe(seen, pass);
  }

  std::vector<StepObserver*> all_, due_;
};

}  // namespace ada::step
