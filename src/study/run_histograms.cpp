// histograms.csv has one row for each exponent of each tensor, so a tensor of a step is a group of
// rows. A run may be writing while this reads: only steps that steps.csv has are whole.
// underflow.csv names the format of each tensor in each step that was logged.
#include "study/run_histograms.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <deque>
#include <map>
#include <set>

#include "config/load.h"
#include "error.h"
#include "io/tensor_names.h"
#include "judge/stored_formats.h"
#include "study/run_files.h"

namespace ada::study {
namespace {

constexpr std::int64_t kMostHistograms = 100'000;  // of a step; they are in memory together

// The bin of a row of histograms.csv.
// The reader fails with the file and line of the row it gave last.
std::int64_t& Bin(const telemetry::CsvReader& file, const std::string& exponent,
                  ExponentBins& bins) {
  if (exponent == "zero") return bins.zeros;
  if (exponent == "inf") return bins.inf;
  if (exponent == "nan") return bins.nan;
  int value = 0;
  const char* end = exponent.data() + exponent.size();
  const auto [stop, error] = std::from_chars(exponent.data(), end, value);
  if (error != std::errc() || stop != end || value < ExponentBins::kLowest ||
      value > ExponentBins::kHighest) {
    file.Fail("column exponent is '" + exponent + "', expected zero, inf, nan or an integer from " +
              std::to_string(ExponentBins::kLowest) + " to " +
              std::to_string(ExponentBins::kHighest));
  }
  return bins[value];
}

// The step of a row, which is at least `least`.
template <class Row>
std::int64_t StepOf(const Row& row, std::int64_t least, const telemetry::CsvReader& file) {
  if (row.step >= least) return row.step;
  file.Fail("column step is '" + std::to_string(row.step) + "', expected at least " +
            std::to_string(least) + ": steps do not go back");
}

// The last step that steps.csv has: all that the other files have of it is written before it. Each
// step has a row of its own there: no step is larger than the rows are many, so that whoever walks
// from step to step has an end in sight.
std::int64_t LastWholeStep(const std::string& folder) {
  telemetry::CsvReader file(CsvPath(folder, StepRow::kFile), telemetry::LastRow::kMayBeTorn);
  std::int64_t last = 1, rows = 0;
  telemetry::ReadRows<StepRow>(file, telemetry::Expect::kKeys, [&](const StepRow& row) {
    last = StepOf(row, last, file);
    if (last > ++rows)
      file.Fail("column step is '" + std::to_string(last) + "' in row " + std::to_string(rows) +
                ": rows are missing, a run writes one for each step");
  });
  return rows > 0 ? last : 0;
}

}  // namespace

void FormatHistory::Add(std::int64_t step, const std::string& layer, const std::string& tensor,
                        const NumberFormat& format) {
  std::vector<Since>& all = formats_[{layer, tensor}];
  if (all.empty() || all.back().format != format) all.push_back({step, format});
}

const NumberFormat* FormatHistory::At(std::int64_t step, const std::string& layer,
                                      const std::string& tensor) const {
  const auto found = formats_.find({layer, tensor});
  if (found == formats_.end()) return nullptr;
  const std::vector<Since>& all = found->second;
  auto at = std::upper_bound(all.begin(), all.end(), step,
                             [](std::int64_t now, const Since& since) { return now < since.step; });
  return at == all.begin() ? &at->format : &std::prev(at)->format;
}

TensorFormats FormatHistory::Last() const {
  TensorFormats last;
  for (const auto& [tensor, all] : formats_) last[tensor] = all.back().format;
  return last;
}

// The names are read once each, since a file has them thousands of times.
FormatHistory ReadFormatHistory(const std::string& folder, const config::Config& config) {
  judge::StoredFormats stored(config);
  std::map<std::string, NumberFormat> by_name;
  FormatHistory history;
  history.scaled_gradients = stored.scales_gradients();
  history.stochastic = judge::RoundsStochastically(config.precision);
  EachRow<TensorRow>(folder, [&](const TensorRow& row) {
    // Scenarios apply to stored tensors of a pass only.
    if (IsOperand(row.tensor) || IsOfUpdate(row.tensor)) return;
    const auto [found, is_new] = by_name.try_emplace(row.format);
    if (is_new)
      found->second = FormatOfRow(folder, row.kFile, row.step, row.format,
                                  [](const std::string& name) { return config::ReadFormat(name); });
    history.Add(row.step, row.layer, row.tensor,
                stored.Find(row.step, row.layer, row.tensor, found->second));
  });
  return history;
}

void ReadHistograms(const std::string& folder,
                    const std::function<void(const TensorHistogram&)>& use) {
  using Row = telemetry::HistogramRow;
  telemetry::CsvReader file(CsvPath(folder, Row::kFile), telemetry::LastRow::kMayBeTorn);
  const std::int64_t last_step = LastWholeStep(folder);
  // Rows that belong together are consecutive, so a group ends where the next one starts.
  TensorHistogram group;
  std::set<std::string> seen;   // the group's exponents
  std::int64_t histograms = 0;  // of the group's step
  telemetry::ReadRows<Row>(file, telemetry::Expect::kKeys, [&](const Row& row) {
    if (StepOf(row, std::max<std::int64_t>(1, group.step), file) > last_step)
      return;  // may not be whole
    if (row.count < 0)
      file.Fail("column count is '" + std::to_string(row.count) + "', expected none below 0");
    const bool same =
        row.step == group.step && row.tensor == group.tensor && row.layer == group.layer;
    // A retried step has the tensor's exponents once more.
    if (!same || seen.contains(row.exponent)) {
      if (!seen.empty()) use(group);
      histograms = row.step == group.step ? histograms + 1 : 1;
      if (histograms > kMostHistograms)
        file.Fail("step " + std::to_string(row.step) + " has more than " +
                  std::to_string(kMostHistograms) + " histograms; expected some for each layer");
      group = {row.step, row.epoch, row.layer, row.tensor, row.scale, {}};
      seen.clear();
    }
    Bin(file, row.exponent, group.bins) = row.count;
    seen.insert(row.exponent);
  });
  if (!seen.empty()) use(group);
}

void EachHistogramStep(const std::string& folder, const FormatHistory& formats,
                       const std::function<void(const HistogramStep&)>& judge) {
  std::map<std::int64_t, double> scales;  // the policy's S
  if (formats.scaled_gradients)
    EachRow<StepRow>(folder, [&](const StepRow& row) { scales[row.step] = row.scale; });
  HistogramStep step;
  // A deque, since tensors point into it while it grows.
  std::deque<ExponentBins> bins;  // those that the step's tensors point to
  const auto finish = [&] {
    if (!step.tensors.empty()) judge(step);
    step.tensors.clear();
    bins.clear();
  };
  bool any = false;
  ReadHistograms(folder, [&](const TensorHistogram& row) {
    any = true;
    if (row.step != step.step) finish();
    if (IsOperand(row.tensor)) return;
    const NumberFormat* format = formats.At(row.step, row.layer, row.tensor);
    if (format == nullptr)
      throw DataError(folder + "/histograms.csv: step " + std::to_string(row.step) + ": " +
                      row.layer + "." + row.tensor +
                      " has no row in underflow.csv, which tells its format; are both files of the "
                      "same run?");
    step.step = row.step;
    step.epoch = row.epoch;
    bins.push_back(row.bins);
    step.tensors.push_back({row.layer, row.tensor, *format, row.scale, &bins.back()});
    const auto s = scales.find(row.step);
    const bool usable = s != scales.end() && std::isfinite(s->second) && s->second > 0;
    if (usable && CarriesS(row.tensor))
      step.tensors.back().per_tensor_scale = row.scale / s->second;
  });
  finish();
  if (any) return;
  const bool ended = HasFile(folder, "summary.json");
  throw DataError(folder + "/histograms.csv: holds no histogram" +
                  (ended ? "; run again" : " yet; wait for the run's first one, or run") +
                  " with a smaller log.histogram_every, or with more of log.statistics");
}

bool HasHistograms(const std::string& folder) {
  if (!HasFile(folder, telemetry::HistogramRow::kFile)) return false;
  telemetry::CsvReader file(CsvPath(folder, telemetry::HistogramRow::kFile),
                            telemetry::LastRow::kMayBeTorn);
  return file.Next() && file.Integer(file.Column("step")) <= LastWholeStep(folder);
}

}  // namespace ada::study
