// Writes down a step: rows of steps.csv, scales.csv, underflow.csv, histograms.csv, what_if.csv and
// probes.csv from what the graph counted. Reads the graph, changes nothing.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "optim/optimizer.h"
#include "scaling/policies/policy.h"
#include "telemetry/log.h"
#include "telemetry/recorder.h"
#include "train/distributed/distributed_gradients.h"
#include "train/observe/layer_overflow.h"
#include "train/observe/operand_what_if.h"
#include "train/observe/probe.h"
#include "train/observe/step_events.h"
#include "train/observe/step_observer.h"
#include "what_if/scenario.h"

namespace ada::train {

struct StepResult;

// Whether a step is one of those of an `every_*` key: step 1 and the multiples; 0: never.
bool IsDue(std::int64_t every, std::int64_t step);

// What became of one kind of values that the update of a layer made: a row of underflow.csv.
struct UpdateRow {
  std::string layer, tensor;
  NumberFormat format;
  TensorStats stats;
};

class StepLog {
 public:
  // `probe`, `operands`: null where there are none. One process of the team writes.
  StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
          telemetry::Recorder& recorder, telemetry::Log& log, const Probe* probe,
          const OperandWhatIf* operands = nullptr, const Team& team = Team::OfOne());

  // A step of log.every, or one that is probed, dumped or has histograms.
  bool Logs(std::int64_t step) const;
  bool TakesHistograms(std::int64_t step) const;
  // A logged step whose tensors are counted: log.statistics is not empty.
  bool Counts(std::int64_t step) const;
  // A logged step whose updates are counted: they are in log.statistics, or masters or the
  // optimizer's state are not fp32.
  bool CountsUpdates(std::int64_t step) const;
  // What Optimizer::Stats gave in such a step, before Write.
  void TakeUpdates(const std::vector<optim::KeptStats>& stats);
  // What gradients lost between processes in such a step (parallel.gradients), before Write.
  void TakeTransport(std::vector<DistributedGradients::Lost> lost, const NumberFormat& format,
                     float scale);
  // Adds up the counts of several micro-batches; not called where there is one.
  void AddMicroBatch(const backend::Pass& pass);
  StepNews Write(const StepResult& result, const scaling::ScaleUpdate& update);

  // What a policy requests of the attempt: values of the rounded dx above and below Pass::edge;
  // which layers' own gradients are not finite (layer_overflow.h).
  void CountEdge(scaling::StepOutcome& attempt) const;
  void FillLayerOverflow(scaling::StepOutcome& attempt) const;
  // Exceptions of the authors' program in this attempt (scaling.reference), one line; or nothing.
  std::string DecisionErrors() const;

  // State of the scenarios (log.what_if), by their names.
  std::map<std::string, scaling::StateMap> SaveScenarios() const;
  void LoadScenarios(const std::map<std::string, scaling::StateMap>& states);

 private:
  const TensorStats& StatsOf(std::size_t point) const;
  const ExponentBins& BinsOf(std::size_t point) const;
  const BlockCounts& BlocksOf(std::size_t point) const;
  EventTensor FirstNotFinite() const;
  void WriteScales(const StepResult& result);
  void WriteTensors(const StepResult& result);
  void WriteBlocks(const StepResult& result, const graph::RoundingPoint& point,
                   const BlockCounts& counts);
  void WriteUpdates(const StepResult& result);
  void WriteTransport(const StepResult& result);
  // A row of underflow.csv, and the alert that it may be.
  void WriteUnderflow(const StepResult& result, const CountedTensor& at, const TensorStats& stats,
                      const telemetry::ProbeError& error = {});
  std::string WhoHas(std::size_t point) const;
  void WriteProbe(const StepResult& result);
  void WriteHistograms(const StepResult& result);
  void WriteOperandsWhatIf(const StepResult& result);
  telemetry::ProbeError ErrorOf(const StepResult& result, const graph::RoundingPoint& point) const;

  const config::Config& config_;
  const graph::Graph& graph_;
  std::string policy_;
  telemetry::Recorder& recorder_;
  StepEvents events_;
  const Probe* probe_;
  const OperandWhatIf* operands_;
  const Team& team_;
  std::vector<LayerRounding> layer_roundings_;
  std::deque<what_if::Scenario> scenarios_;  // one a log.what_if entry of no blocks
  std::vector<TensorStats> sums_;            // by rounding point, with several micro-batches
  std::vector<BlockCounts> block_sums_;      // the same, of those in block-scaled formats
  std::vector<ExponentBins> bin_sums_;       // the same, where histograms are taken
  std::vector<UpdateRow> updates_;           // of the present step; empty: not counted
  StepNews news_;                            // of the present step
  std::vector<int> largest_at_;              // RoundingPoint::largest_at of the sums
  std::vector<DistributedGradients::Lost> transport_;  // of the present step
  NumberFormat transport_format_;
  float transport_scale_ = 1;
};

}  // namespace ada::train
