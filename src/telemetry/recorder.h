// Everything a run writes down: one call each for a row and for the totals that the summary needs.
// The trainer talks to this, not to RunLogs.
#pragma once
#include <cstdint>
#include <map>
#include <string>

#include "telemetry/layer_totals.h"
#include "telemetry/run_logs.h"
#include "telemetry/run_totals.h"

namespace ada::telemetry {

class Recorder {
 public:
  // `lengths` as in RunLogs; with lengths the totals go on from the rows that are kept. Throws
  // OutputError or DataError.
  Recorder(const std::string& folder, const std::map<std::string, std::int64_t>& lengths);

  void Step(const StepRow& row);
  void Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
             const std::string& policy, const scaling::ScaleDecision& decision);
  void Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, const NumberFormat& format, double scale,
                 const TensorStats& stats);
  void Event(const EventRow& row) { logs_.Event(row); }
  void Evaluation(const EvaluationRow& row);
  void Timing(const TimingRow& row);

  void Flush() { logs_.Flush(); }
  std::map<std::string, std::int64_t> Sync() { return logs_.Sync(); }

  const RunTotals& run() const { return run_; }
  const LayerTotals& layers() const { return layers_; }
  // Logged seconds of the processes before this one.
  double earlier_seconds() const { return earlier_seconds_; }

 private:
  RunLogs logs_;
  RunTotals run_;
  LayerTotals layers_;
  double earlier_seconds_ = 0;
};

}  // namespace ada::telemetry
