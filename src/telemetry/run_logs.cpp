#include "telemetry/run_logs.h"

#include <sys/stat.h>

#include <cmath>

#include "core/error.h"
#include "telemetry/csv.h"
#include "telemetry/csv_reader.h"

namespace ada::telemetry {
namespace {

using Lengths = std::map<std::string, std::int64_t>;

// Bytes of `name` to keep; -1 when the run starts afresh.
std::int64_t Keep(const std::string& folder, const Lengths& lengths, const std::string& name) {
  if (lengths.empty()) return -1;
  const auto found = lengths.find(name);
  if (found != lengths.end()) return found->second;
  throw DataError(folder + "/" + name +
                  ": the checkpoint does not say how long it was; start again "
                  "with --overwrite");
}

std::int64_t LastStep(const std::string& path) {
  CsvReader steps(path);
  const std::size_t column = steps.Column("step");
  std::int64_t last = 0;
  while (steps.Next()) last = steps.Integer(column);
  return last;
}

// Bytes of timing.csv up to its last row at or before the last step of the (already cut) steps.csv.
// -1, a fresh file: there is none, or the killed run had not written its header.
std::int64_t KeepTiming(const std::string& folder, const Lengths& lengths) {
  const std::string path = folder + "/timing.csv";
  struct stat status = {};
  if (lengths.empty() || stat(path.c_str(), &status) != 0 || status.st_size == 0) return -1;
  const std::int64_t last = LastStep(folder + "/steps.csv");
  CsvReader timing(path);
  const std::size_t column = timing.Column("step");
  std::int64_t keep = timing.offset();
  try {
    while (timing.Next() && timing.Integer(column) <= last) keep = timing.offset();
  } catch (const DataError&) {  // a torn last row goes the way of the steps that are done again
  }
  return keep;
}

double Percent(std::int64_t part, std::int64_t whole) {
  return 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void PercentOrEmpty(CsvFile& file, std::int64_t part, std::int64_t whole) {
  whole > 0 ? file.Number(Percent(part, whole)) : file.Empty();
}

// A stage of a decision; NaN: not taken.
void Stage(CsvFile& file, double value) { std::isnan(value) ? file.Empty() : file.Number(value); }

}  // namespace

struct RunLogs::Files {
  Files(const std::string& folder, const Lengths& lengths)
      : steps(folder + "/steps.csv", kStepColumns, Keep(folder, lengths, "steps.csv")),
        scales(folder + "/scales.csv", kScaleColumns, Keep(folder, lengths, "scales.csv")),
        underflow(folder + "/underflow.csv", kUnderflowColumns,
                  Keep(folder, lengths, "underflow.csv")),
        events(folder + "/events.csv", kEventColumns, Keep(folder, lengths, "events.csv")),
        evaluation(folder + "/evaluation.csv", kEvaluationColumns,
                   Keep(folder, lengths, "evaluation.csv")),
        timing(folder + "/timing.csv", kTimingColumns, KeepTiming(folder, lengths)) {}

  CsvFile steps, scales, underflow, events, evaluation, timing;
};

RunLogs::RunLogs(const std::string& folder, const Lengths& lengths)
    : files_(std::make_unique<Files>(folder, lengths)) {}
RunLogs::~RunLogs() = default;

void RunLogs::Step(const StepRow& row) {
  files_->steps.Integer(row.step).Integer(row.epoch).Number(row.loss).Number(row.accuracy);
  files_->steps.Number(row.lr).Scale(row.scale).Integer(row.overflow).Integer(row.skipped);
  files_->steps.Number(row.grad_norm).EndRow();
}

void RunLogs::Scale(std::int64_t step, std::int64_t epoch, const std::string& layer,
                    const std::string& policy, const scaling::ScaleDecision& decision) {
  CsvFile& file = files_->scales;
  const bool branch = decision.limit == scaling::Limit::kBranch;
  file.Integer(step).Integer(epoch).Text(layer).Text(policy).Scale(decision.scale_in);
  Stage(file, branch ? NAN : decision.unbound);
  Stage(file, branch ? NAN : decision.bound);
  file.Scale(branch ? NAN : decision.pow2).Scale(branch ? NAN : decision.alpha);
  file.Scale(decision.scale_out).Text(scaling::LimitName(decision.limit)).EndRow();
}

void RunLogs::Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                        const std::string& tensor, const NumberFormat& format, double scale,
                        const TensorStats& stats) {
  ADA_CHECK(stats.full);
  CsvFile& file = files_->underflow;
  const double smallest = stats.min_abs, largest = stats.max_abs;
  file.Integer(step).Integer(epoch).Text(layer).Text(tensor).Text(FormatName(format)).Scale(scale);
  file.Integer(stats.numel).Integer(stats.zeros_before).Integer(stats.zeros_after);
  file.Integer(stats.underflow);
  PercentOrEmpty(file, stats.underflow, stats.numel - stats.zeros_before);
  PercentOrEmpty(file, stats.underflow, stats.numel);
  PercentOrEmpty(file, stats.below_min, stats.numel);
  file.Integer(stats.subnormal).Integer(stats.overflow).Integer(stats.inf).Integer(stats.nan);
  const bool any = smallest > 0;  // a finite value that is not zero
  any ? file.Number(smallest / scale) : file.Empty();
  file.Number(largest / scale).Number(stats.mean / scale).Number(stats.std / scale);
  file.Number(stats.l1 / scale).Number(stats.l2 / scale);
  any ? file.Number(std::log2(largest / smallest)) : file.Empty();
  file.Empty().Empty().EndRow();  // mse, sqnr_db: of probe steps only
}

void RunLogs::Event(const EventRow& row) {
  files_->events.Integer(row.step).Integer(row.epoch).Text(row.event).Text(row.layer);
  files_->events.Text(row.tensor).Text(row.value).Text(row.message).EndRow();
}

void RunLogs::Evaluation(const EvaluationRow& row) {
  files_->evaluation.Integer(row.step).Integer(row.epoch).Text(row.split).Integer(row.images);
  files_->evaluation.Number(row.loss).Number(row.top1).Number(row.top5).EndRow();
}

void RunLogs::Timing(const TimingRow& row) {
  files_->timing.Integer(row.step).Number(row.seconds).Number(row.images_per_second);
  files_->timing.Number(row.data).Number(row.forward).Number(row.backward).Number(row.update);
  files_->timing.Number(row.log).EndRow();
}

void RunLogs::Flush() {
  // steps.csv last: a row there means that the other files know its step.
  for (CsvFile* file : {&files_->scales, &files_->underflow, &files_->events, &files_->evaluation,
                        &files_->timing, &files_->steps}) {
    file->Flush();
  }
}

Lengths RunLogs::Sync() {
  files_->timing.Sync();
  return {{"scales.csv", files_->scales.Sync()},
          {"underflow.csv", files_->underflow.Sync()},
          {"events.csv", files_->events.Sync()},
          {"steps.csv", files_->steps.Sync()},
          {"evaluation.csv", files_->evaluation.Sync()}};
}

}  // namespace ada::telemetry
