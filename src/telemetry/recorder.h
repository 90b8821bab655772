// Records a run: one call for each row and for the totals that the summary needs. The trainer uses
// this class, not RunLogs.
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "telemetry/run_logs.h"
#include "telemetry/tensorboard.h"
#include "telemetry/totals.h"

namespace ada::telemetry {

// One for each run; where several processes share one, only the first opens it (Session::writes).
// Rows of one step come in the order of execution.
class Recorder {
 public:
  // Before Open, rows are only added to the totals: nothing is written.
  Recorder() = default;
  // `lengths` and `choice`: see RunLogs; with lengths the totals continue from the rows that are
  // kept. `tensorboard` requests event files in <folder>/tensorboard as well. Without lengths the
  // event files and dumped steps of an earlier run in the folder are deleted. Throws OutputError or
  // DataError.
  Recorder(const std::string& folder, const std::map<std::string, std::int64_t>& lengths,
           const LogChoice& choice = {}, bool tensorboard = false) {
    Open(folder, lengths, choice, tensorboard);
  }
  void Open(const std::string& folder, const std::map<std::string, std::int64_t>& lengths,
            const LogChoice& choice, bool tensorboard);

  void Step(const StepRow& row);
  void Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
             const std::string& policy, const scaling::ScaleDecision& decision);
  void Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, const FormatLabel& format, double carried,
                 const TensorStats& stats, const ProbeError& error = {},
                 double per_tensor_scale = 1);
  void Histogram(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, double scale, const ExponentBins& bins);
  void Blocks(const BlockRow& row) {
    if (logs_) logs_->Blocks(row);
    layers_.Add(row);
  }
  void Accumulators(const AccumulatorRow& row) {
    if (logs_) logs_->Accumulators(row);
    layers_.Add(row);
  }
  void WhatIf(const WhatIfRow& row) {
    if (logs_) logs_->WhatIf(row);
  }
  void WhatIf(const WhatIfAccumulatorRow& row) {
    if (logs_) logs_->WhatIf(row);
  }
  void WhatIf(const WhatIfBlockRow& row) {
    if (logs_) logs_->WhatIf(row);
  }
  void Probe(const ProbeRow& row) {
    if (logs_) logs_->Probe(row);
    layers_.Add(row);
  }
  void Classes(const ClassRow& row);
  void Confusion(const ConfusionRow& row) {
    if (logs_) logs_->Confusion(row);
  }
  void Losses(const LossRow& row) {
    if (logs_) logs_->Losses(row);
  }
  void Event(const EventRow& row);
  void Evaluation(const EvaluationRow& row);
  void Timing(const TimingRow& row);

  // Hands rows to the system; throws OutputError.
  void Flush();
  // Flushes to the disk; returns the lengths for the checkpoint, like RunLogs::Sync. Before Open
  // there are none.
  std::map<std::string, std::int64_t> Sync();

  const RunTotals& run() const { return run_; }
  const LayerTotals& layers() const { return layers_; }
  // Seconds logged by earlier processes of this run.
  double earlier_seconds() const { return earlier_seconds_; }

 private:
  std::optional<RunLogs> logs_;
  RunTotals run_;
  LayerTotals layers_;
  std::optional<TensorBoard> tensorboard_;
  double earlier_seconds_ = 0;
};

}  // namespace ada::telemetry
