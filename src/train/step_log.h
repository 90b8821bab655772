// Writes down a step: rows of steps.csv, scales.csv, underflow.csv and events.csv from what the
// graph counted. Reads the graph, changes nothing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "scaling/policy.h"
#include "telemetry/log.h"
#include "telemetry/recorder.h"

namespace ada::train {

struct StepResult;

class StepLog {
 public:
  StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
          telemetry::Recorder& recorder, telemetry::Log& log);

  // Step 1 and the multiples of log.every.
  bool Logs(std::int64_t step) const;
  // A logged step whose tensors are counted: log.statistics is not empty.
  bool Counts(std::int64_t step) const;
  // Adds up the counts of several micro-batches; not called where there is one.
  void AddMicroBatch(bool first);
  void Write(const StepResult& result, const scaling::Verdict& verdict);

  // What a policy wants to know of the attempt: values of the rounded dx above and below
  // Pass::edge; which layers' own gradients are not finite. All layers, where none can be named.
  void CountEdge(scaling::Attempt& attempt) const;
  void NoteLayers(scaling::Attempt& attempt) const;
  // Exceptions of the authors' program in this attempt (scaling.reference), one line; or nothing.
  std::string DecisionErrors() const;

 private:
  struct Culprit {
    std::string layer, tensor, value;
  };
  const TensorStats& StatsOf(std::size_t point) const;
  Culprit FirstNotFinite() const;
  void WriteCounts(const StepResult& result);
  void WriteEvents(const StepResult& result, const scaling::Verdict& verdict);
  void WriteOverflow(const StepResult& result);
  void Event(const StepResult& result, const std::string& name, const Culprit& at,
             const std::string& message);

  const config::Config& config_;
  const graph::Graph& graph_;
  std::string policy_;
  telemetry::Recorder& recorder_;
  telemetry::Log& log_;
  std::vector<TensorStats> sums_;  // by rounding point, with several micro-batches
};

// The counts of both, as if one tensor had held all values.
TensorStats Combine(const TensorStats& a, const TensorStats& b);

}  // namespace ada::train
