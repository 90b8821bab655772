// The log of a step: its rows in all CSV files of a run, from what is known of the attempt.
#pragma once
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"
#include "judge/scenario.h"
#include "optim/optimizer.h"
#include "record/operand_what_if.h"
#include "record/probe.h"
#include "record/step_events.h"
#include "step/attempt/attempt.h"
#include "step/step_logging.h"
#include "telemetry/log.h"
#include "telemetry/recorder.h"

namespace ada::record {

// One kind of values that the update of a layer made (masters, optimizer state, changes of
// weights, Newton-Schulz's matrices), and what rounding did to them: a row of underflow.csv.
struct UpdateRow {
  std::string layer, tensor;
  std::string format;  // its name, or that of a layout
  TensorStats stats;
  telemetry::ProbeError error = {};
};

// Returns one row for the whole of a layer, then one for each part if it has several. kept: by
// trained parameter, or empty.
std::vector<UpdateRow> UpdateRows(const config::Config& config, const graph::Graph& graph,
                                  const std::vector<optim::KeptStats>& kept);

// Logs a step: rows of steps.csv, scales.csv, underflow.csv, histograms.csv, what_if.csv and
// probes.csv, from what is known of the attempt. Reads the graph and changes nothing. One for each
// session (or fork), called by the trainer after every attempt. In processes that do not write,
// Write returns at once.
class StepLog : public step::AttemptLog {
 public:
  // `probe`, `operands`: null where there are none. One process of the team writes.
  StepLog(const config::Config& config, const graph::Graph& graph, const std::string& policy,
          telemetry::Recorder& recorder, telemetry::Log& log, const Probe* probe,
          const OperandWhatIf* operands = nullptr, const step::Team& team = step::Team::OfOne());

  step::StepNews Write(const step::Attempt& attempt) override;

  // State of the scenarios (log.what_if), by their names. LoadScenarios returns the names of those
  // whose state is that of another choice: they begin anew.
  std::map<std::string, scaling::StateMap> SaveScenarios() const;
  std::vector<std::string> LoadScenarios(const std::map<std::string, scaling::StateMap>& states);

 private:
  EventTensor Named(const step::NotFiniteTensor& first) const;
  void WriteScales(const step::StepResult& result);
  void WriteTensors(const step::StepResult& result, const step::BatchCounts& counts);
  void WriteAccumulators(const step::StepResult& result, const step::BatchCounts& counts,
                         const std::vector<optim::KeptStats>& kept);
  void WriteJudgedSums(const step::StepResult& result, const step::BatchCounts& counts);
  void WriteBlocks(const step::StepResult& result, const graph::RoundingPoint& point,
                   const BlockCounts& counts);
  void WriteSums(const step::StepResult& result, const std::string& tensor,
                 const step::DistributedGradients::Transport& sums);
  // A row of underflow.csv, and the alert that it may be.
  void WriteUnderflow(const step::StepResult& result, const CountedTensor& at,
                      const TensorStats& stats, const telemetry::ProbeError& error = {});
  void WriteProbe(const step::StepResult& result);
  void WriteHistograms(const step::StepResult& result, const step::BatchCounts& counts);
  void WriteOperandsWhatIf(const step::StepResult& result);
  telemetry::ProbeError ErrorOf(const step::StepResult& result,
                                const graph::RoundingPoint& point) const;

  const config::Config& config_;
  const graph::Graph& graph_;
  std::string policy_;
  telemetry::Recorder& recorder_;
  StepEvents events_;
  const Probe* probe_;
  const OperandWhatIf* operands_;
  const step::LogSchedule schedule_;
  const step::Team& team_;
  std::deque<judge::Scenario> scenarios_;  // one for each log.what_if entry of histograms
  step::StepNews news_;                    // of the current step
};

}  // namespace ada::record
