#include "telemetry/run_totals.h"

#include <algorithm>
#include <cmath>

#include "telemetry/csv.h"
#include "telemetry/csv_reader.h"

namespace ada::telemetry {

// Sums are over the values as logged, so that reading them back gives the same.
void RunTotals::Add(const StepRow& row) {
  if (row.epoch != last_.epoch) {
    epoch_steps_ = 0;
    loss_sum_ = accuracy_sum_ = 0;
  }
  last_ = row;
  last_.loss = AsLogged(row.loss);
  last_.accuracy = AsLogged(row.accuracy);
  last_.lr = AsLogged(row.lr);
  last_.grad_norm = AsLogged(row.grad_norm);
  skipped_ += row.skipped;
  if (!std::isfinite(row.loss)) return;
  ++epoch_steps_;
  loss_sum_ += last_.loss;
  accuracy_sum_ += last_.accuracy;
}

void RunTotals::Add(const EvaluationRow& row) {
  EvaluationRow logged = row;
  logged.loss = AsLogged(row.loss);
  logged.top1 = AsLogged(row.top1);
  logged.top5 = AsLogged(row.top5);
  const auto split = std::find_if(evaluations_.begin(), evaluations_.end(),
                                  [&](const SplitTotals& s) { return s.last.split == row.split; });
  if (split == evaluations_.end()) {
    evaluations_.push_back({logged, logged});
    return;
  }
  split->last = logged;
  if (logged.top1 > split->best.top1) split->best = logged;
}

double RunTotals::epoch_loss() const {
  return epoch_steps_ > 0 ? loss_sum_ / static_cast<double>(epoch_steps_) : NAN;
}
double RunTotals::epoch_accuracy() const {
  return epoch_steps_ > 0 ? accuracy_sum_ / static_cast<double>(epoch_steps_) : NAN;
}

void RunTotals::RebuildFrom(const std::string& folder) {
  *this = RunTotals();
  CsvReader steps(folder + "/steps.csv");
  while (steps.Next()) {  // columns in the order of kStepColumns
    Add(StepRow{.step = steps.Integer(0),
                .epoch = steps.Integer(1),
                .loss = steps.Number(2),
                .accuracy = steps.Number(3),
                .lr = steps.Number(4),
                .scale = steps.NumberOrNan(5),
                .overflow = steps.Integer(6) != 0,
                .skipped = steps.Integer(7) != 0,
                .grad_norm = steps.Number(8)});
  }
  CsvReader evaluation(folder + "/evaluation.csv");
  while (evaluation.Next()) {
    Add(EvaluationRow{.step = evaluation.Integer(0),
                      .epoch = evaluation.Integer(1),
                      .split = evaluation.Text(2),
                      .images = evaluation.Integer(3),
                      .loss = evaluation.Number(4),
                      .top1 = evaluation.Number(5),
                      .top5 = evaluation.Number(6)});
  }
  CsvReader timing(folder + "/timing.csv");
  while (timing.Next()) seconds_ += timing.Number(1);
}

}  // namespace ada::telemetry
