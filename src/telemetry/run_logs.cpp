#include "telemetry/run_logs.h"

#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <optional>

#include "core/error.h"
#include "telemetry/csv.h"
#include "telemetry/csv_reader.h"
#include "telemetry/layer_totals.h"

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

// NaN: a stage of a decision that was not taken, an error that was not measured.
void NumberOrEmpty(CsvFile& file, double value) {
  std::isnan(value) ? file.Empty() : file.Number(value);
}

// A file that not every run has: there where it is wanted, or where the checkpoint knows it (then
// it is cut like the others). Else one that lies there goes: its rows are of steps to be done
// again, or of an earlier run.
void OpenOptional(std::optional<CsvFile>& file, const std::string& path, const char* columns,
                  const Lengths& lengths, bool wanted) {
  const auto known = lengths.find(std::filesystem::path(path).filename().string());
  if (known != lengths.end()) {
    file.emplace(path, columns, known->second);
  } else if (wanted) {
    file.emplace(path, columns);
  } else {
    std::error_code error;
    std::filesystem::remove(path, error);
    if (error) throw OutputError(path + ": cannot be deleted: " + error.message());
  }
}

}  // namespace

struct RunLogs::Files {
  Files(const std::string& folder, const Lengths& lengths, const LogChoice& choice)
      : steps(folder + "/steps.csv", kStepColumns, Keep(folder, lengths, "steps.csv")),
        scales(folder + "/scales.csv", kScaleColumns, Keep(folder, lengths, "scales.csv")),
        underflow(folder + "/underflow.csv", kUnderflowColumns,
                  Keep(folder, lengths, "underflow.csv")),
        events(folder + "/events.csv", kEventColumns, Keep(folder, lengths, "events.csv")),
        evaluation(folder + "/evaluation.csv", kEvaluationColumns,
                   Keep(folder, lengths, "evaluation.csv")),
        timing(folder + "/timing.csv", kTimingColumns, KeepTiming(folder, lengths)) {
    OpenOptional(histograms, folder + "/histograms.csv", kHistogramColumns, lengths,
                 choice.histograms);
    OpenOptional(what_if, folder + "/what_if.csv", kWhatIfColumns, lengths, choice.what_if);
    OpenOptional(probes, folder + "/probes.csv", kProbeColumns, lengths, choice.probes);
  }

  CsvFile steps, scales, underflow, events, evaluation, timing;
  std::optional<CsvFile> histograms, what_if, probes;
};

RunLogs::RunLogs(const std::string& folder, const Lengths& lengths, const LogChoice& choice)
    : files_(std::make_unique<Files>(folder, lengths, choice)) {}
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
  NumberOrEmpty(file, branch ? NAN : decision.unbound);
  NumberOrEmpty(file, branch ? NAN : decision.bound);
  file.Scale(branch ? NAN : decision.pow2).Scale(branch ? NAN : decision.alpha);
  file.Scale(decision.scale_out).Text(scaling::LimitName(decision.limit)).EndRow();
}

void RunLogs::Underflow(std::int64_t step, std::int64_t epoch, const std::string& layer,
                        const std::string& tensor, const NumberFormat& format, double scale,
                        const TensorStats& stats, const ProbeError& error) {
  ADA_CHECK(stats.full);
  CsvFile& file = files_->underflow;
  const double smallest = stats.min_abs, largest = stats.max_abs;
  file.Integer(step).Integer(epoch).Text(layer).Text(tensor).Text(FormatName(format)).Scale(scale);
  file.Integer(stats.numel).Integer(stats.zeros_before).Integer(stats.zeros_after);
  file.Integer(stats.underflow);
  NumberOrEmpty(file, UnderflowPct(stats));
  PercentOrEmpty(file, stats.underflow, stats.numel);
  PercentOrEmpty(file, stats.below_min, stats.numel);
  file.Integer(stats.subnormal).Integer(stats.overflow).Integer(stats.inf).Integer(stats.nan);
  const bool any = smallest > 0;  // a finite value that is not zero
  any ? file.Number(smallest / scale) : file.Empty();
  file.Number(largest / scale).Number(stats.mean / scale).Number(stats.std / scale);
  file.Number(stats.l1 / scale).Number(stats.l2 / scale);
  any ? file.Number(std::log2(largest / smallest)) : file.Empty();
  NumberOrEmpty(file, error.mse);
  NumberOrEmpty(file, error.sqnr_db);
  file.EndRow();
}

void RunLogs::Histogram(std::int64_t step, std::int64_t epoch, const std::string& layer,
                        const std::string& tensor, double scale, const ExponentBins& bins) {
  ADA_CHECK(files_->histograms.has_value());
  CsvFile& file = *files_->histograms;
  const auto begin = [&]() -> CsvFile& {
    return file.Integer(step).Integer(epoch).Text(layer).Text(tensor).Scale(scale);
  };
  for (const auto& [word, count] :
       {std::pair("zero", bins.zeros), {"inf", bins.inf}, {"nan", bins.nan}}) {
    begin().Text(word).Integer(count).EndRow();
  }
  for (int exponent = ExponentBins::kLowest; exponent <= ExponentBins::kHighest; ++exponent) {
    if (bins[exponent] > 0) begin().Integer(exponent).Integer(bins[exponent]).EndRow();
  }
}

void RunLogs::WhatIf(const WhatIfRow& row) {
  ADA_CHECK(files_->what_if.has_value());
  CsvFile& file = *files_->what_if;
  file.Integer(row.step).Integer(row.epoch).Text(row.layer).Text(row.tensor).Text(row.scenario);
  file.Text(row.format).Scale(row.scale);
  NumberOrEmpty(file, row.underflow_pct_nonzero);
  file.Number(row.overflow);
  NumberOrEmpty(file, row.underflow_unsure_pct);
  file.Integer(row.overflow_unsure).EndRow();
}

void RunLogs::Probe(const ProbeRow& row) {
  ADA_CHECK(files_->probes.has_value());
  CsvFile& file = *files_->probes;
  file.Integer(row.step).Integer(row.epoch).Text(row.layer).Text(row.tensor).Text(row.format);
  file.Scale(row.scale).Integer(row.numel).Integer(row.nonzero).Integer(row.lost);
  PercentOrEmpty(file, row.lost, row.nonzero);
  NumberOrEmpty(file, row.mse);
  NumberOrEmpty(file, row.sqnr_db);
  NumberOrEmpty(file, row.cosine);
  file.EndRow();
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
  Files& f = *files_;
  for (std::optional<CsvFile>* file : {&f.histograms, &f.what_if, &f.probes}) {
    if (*file) (*file)->Flush();
  }
  // steps.csv last: a row there means that the other files know its step.
  for (CsvFile* file : {&f.scales, &f.underflow, &f.events, &f.evaluation, &f.timing, &f.steps}) {
    file->Flush();
  }
}

Lengths RunLogs::Sync() {
  Files& f = *files_;
  Lengths lengths;
  if (f.histograms) lengths["histograms.csv"] = f.histograms->Sync();
  if (f.what_if) lengths["what_if.csv"] = f.what_if->Sync();
  if (f.probes) lengths["probes.csv"] = f.probes->Sync();
  lengths["scales.csv"] = f.scales.Sync();
  lengths["underflow.csv"] = f.underflow.Sync();
  lengths["events.csv"] = f.events.Sync();
  lengths["evaluation.csv"] = f.evaluation.Sync();
  f.timing.Sync();
  lengths["steps.csv"] = f.steps.Sync();
  return lengths;
}

}  // namespace ada::telemetry
