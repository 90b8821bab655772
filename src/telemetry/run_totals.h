// What the rows of steps.csv, evaluation.csv and timing.csv sum up to, for the summary. The same
// from the rows as they are made or read back.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/run_logs.h"

namespace ada::telemetry {

// Evaluations of one split: the last, and the best (largest top1, the first of equals).
struct SplitTotals {
  EvaluationRow last, best;
};

class RunTotals {
 public:
  void Add(const StepRow& row);
  void Add(const EvaluationRow& row);
  void Add(const TimingRow& row) { seconds_ += row.seconds; }
  // Starts from the CSVs in `folder`, already cut to a checkpoint. Throws DataError with file and
  // line.
  void RebuildFrom(const std::string& folder);

  std::int64_t steps() const { return last_.step; }
  std::int64_t skipped() const { return skipped_; }
  const StepRow& last() const { return last_; }
  // Means over the steps of the last epoch so far whose loss is finite; NaN where there is none.
  double epoch_loss() const;
  double epoch_accuracy() const;
  const std::vector<SplitTotals>& evaluations() const { return evaluations_; }
  double logged_seconds() const { return seconds_; }  // the sum of timing.csv

 private:
  StepRow last_;
  std::int64_t skipped_ = 0, epoch_steps_ = 0;
  double loss_sum_ = 0, accuracy_sum_ = 0, seconds_ = 0;
  std::vector<SplitTotals> evaluations_;
};

}  // namespace ada::telemetry
