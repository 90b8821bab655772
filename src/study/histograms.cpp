#include "study/histograms.h"

#include <charconv>
#include <deque>
#include <limits>
#include <set>

#include "config/load.h"
#include "core/error.h"
#include "study/run_files.h"

namespace ada::study {
namespace {

// The bin of a row of histograms.csv.
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

// The last step that steps.csv has: all that the other files have of it is written before it. The
// largest number where there is no such file.
std::int64_t LastWholeStep(const std::string& folder) {
  if (!HasFile(folder, StepRow::kFile)) return std::numeric_limits<std::int64_t>::max();
  std::int64_t last = 0;
  EachRow<StepRow>(folder, [&](const StepRow& row) { last = row.step; });
  return last;
}

}  // namespace

void ReadHistograms(const std::string& folder,
                    const std::function<void(const TensorHistogram&)>& use) {
  using Row = telemetry::HistogramRow;
  telemetry::CsvReader file(CsvPath(folder, Row::kFile), telemetry::LastRow::kMayBeTorn);
  const std::int64_t last_step = LastWholeStep(folder);
  TensorHistogram group;
  std::set<std::string> seen;  // the group's exponents
  telemetry::ReadRows<Row>(file, telemetry::Expect::kKeys, [&](const Row& row) {
    if (row.step > last_step) return;  // may not be whole
    const bool same =
        row.step == group.step && row.tensor == group.tensor && row.layer == group.layer;
    // A retried step has the tensor's exponents once more.
    if (!same || seen.contains(row.exponent)) {
      if (!seen.empty()) use(group);
      group = {row.step, row.epoch, row.layer, row.tensor, row.scale, {}};
      seen.clear();
    }
    Bin(file, row.exponent, group.bins) = row.count;
    seen.insert(row.exponent);
  });
  if (!seen.empty()) use(group);
}

TensorFormats ReadTensorFormats(const std::string& folder, const config::Config& config) {
  const bool saturate = config.precision.overflow == config::OverflowKind::kSaturate;
  std::map<std::string, NumberFormat> by_name;
  TensorFormats formats;
  EachRow<TensorRow>(folder, [&](const TensorRow& row) {
    const auto [found, is_new] = by_name.try_emplace(row.format);
    if (is_new) {
      try {
        found->second = config::ReadFormat(row.format);
      } catch (const ConfigError&) {
        throw DataError(folder + "/underflow.csv: step " + std::to_string(row.step) +
                        ": column format is '" + row.format +
                        "', expected one of `ada-train formats` or {exponent: .., mantissa: ..}");
      }
      found->second.saturate = saturate && found->second != kFp32;
    }
    formats[{row.layer, row.tensor}] = found->second;
  });
  return formats;
}

void EachHistogramStep(const std::string& folder, const TensorFormats& formats,
                       const std::function<void(const HistogramStep&)>& judge) {
  HistogramStep step;
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
    const auto format = formats.find({row.layer, row.tensor});
    if (format == formats.end())
      throw DataError(folder + "/histograms.csv: step " + std::to_string(row.step) + ": " +
                      row.layer + "." + row.tensor +
                      " has no row in underflow.csv, which tells its format; are both files of the "
                      "same run?");
    step.step = row.step;
    step.epoch = row.epoch;
    bins.push_back(row.bins);
    step.tensors.push_back({row.layer, row.tensor, format->second, row.scale, &bins.back()});
  });
  finish();
  if (!any)
    throw DataError(folder +
                    "/histograms.csv: holds no histogram yet; wait for the run's first one, or run "
                    "with a smaller log.histogram_every");
}

}  // namespace ada::study
