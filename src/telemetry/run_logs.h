// Writes the CSV files of a run: rows as they come, in the columns of rows.h. totals.h sums them
// up.
#pragma once
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "number/blocks/block_format.h"
#include "number/stats.h"
#include "scaling/rules/rules.h"
#include "telemetry/rows.h"

namespace ada::telemetry {

// Files that exist only if they are requested, or if the checkpoint has them. A file that a resumed
// run requests but its checkpoint does not have starts anew; one that is neither requested nor in
// the checkpoint is deleted from the folder.
struct LogChoice {
  bool histograms = false, what_if = false, what_if_blocks = false, probes = false, blocks = false;
  bool accumulators = false, what_if_accumulators = false, classes = false, confusion = false,
       losses = false;
  bool best_by_loss = false;  // of the totals: the evaluation with the smallest loss is the best
};
// mse and sqnr_db in a row of underflow.csv; NaN: empty (the step is not a probe step).
struct ProbeError {
  double mse = NAN, sqnr_db = NAN;
};

// Returns underflow as a percentage of the values that are not zero; NaN if all are zero.
double UnderflowPct(const TensorStats& stats);
// Returns a decision as a row of scales.csv.
ScaleRow ScaleRowOf(std::int64_t step, std::int64_t epoch, const std::string& layer,
                    const std::string& policy, const scaling::ScaleDecision& decision);

// Throws DataError or OutputError if a file that every run has is not in `lengths`, or if one in
// `lengths` cannot be truncated to its length there (csv.h); changes nothing.
void CheckLogs(const std::string& folder, const std::map<std::string, std::int64_t>& lengths);

// Owns the files of one run; only Recorder uses it. Numbers are logged as they are given, unless a
// comment says otherwise.
// What a row calls the format that a tensor was rounded to.
struct FormatLabel {
  FormatLabel(const AnyFormat& format) : text(FormatName(format)) {}
  FormatLabel(const NumberFormat& format) : text(FormatName(format)) {}
  FormatLabel(std::string name) : text(std::move(name)) {}
  std::string text;
};

class RunLogs {
 public:
  // `lengths`, from a checkpoint, maps file names to the bytes to keep; if it is empty the files
  // start anew. timing.csv, which no checkpoint records, is truncated after the last step that
  // steps.csv keeps. Throws OutputError with the system's reason, or DataError if the files are not
  // those of the checkpoint: in that case none of them has been truncated.
  RunLogs(const std::string& folder, const std::map<std::string, std::int64_t>& lengths,
          const LogChoice& choice = {});
  ~RunLogs();
  void Step(const StepRow& row);
  void Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
             const std::string& policy, const scaling::ScaleDecision& decision);
  // `stats` must be full; its values carry `carried` and are logged without any scale. The tensor's
  // own may be 0 or NaN.
  void Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, const FormatLabel& format, double carried,
                 const TensorStats& stats, const ProbeError& error = {},
                 double per_tensor_scale = 1);
  // Writes `zero`, `inf` and `nan` first, always (the column is then text to every reader), then
  // one row for each exponent that occurs, rising. `scale` is the one that the tensor carried.
  // Throws InternalError where the file was not asked for, as those down to Losses do.
  void Histogram(std::int64_t step, std::int64_t epoch, const std::string& layer,
                 const std::string& tensor, double scale, const ExponentBins& bins);
  void Blocks(const BlockRow& row);
  void Accumulators(const AccumulatorRow& row);
  void WhatIf(const WhatIfRow& row);
  void WhatIf(const WhatIfBlockRow& row);
  void WhatIf(const WhatIfAccumulatorRow& row);
  void Probe(ProbeRow row);
  void Classes(const ClassRow& row);
  void Confusion(const ConfusionRow& row);
  void Losses(const LossRow& row);
  void Event(const EventRow& row);
  void Evaluation(const EvaluationRow& row);
  void Timing(const TimingRow& row);

  void Flush();  // throws OutputError naming the file
  // Syncs all files and returns their lengths for a checkpoint (timing.csv is not among them).
  std::map<std::string, std::int64_t> Sync();

 private:
  struct Files;
  std::unique_ptr<Files> files_;
};

}  // namespace ada::telemetry
