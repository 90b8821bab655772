// The files of a run that have rows for each layer: scales.csv, underflow.csv, histograms.csv.
#include <charconv>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "study/run_file.h"

namespace ada::study {
namespace {

constexpr char kHistogramKey[] =
    "log.histogram_every makes it: run again with --set log.histogram_every=100";

using IntegerColumn = std::pair<const char*, std::int64_t TensorRow::*>;
using NumberColumn = std::pair<const char*, double TensorRow::*>;
constexpr IntegerColumn kTensorIntegers[] = {
    {"numel", &TensorRow::numel},
    {"zeros_before", &TensorRow::zeros_before},
    {"zeros_after", &TensorRow::zeros_after},
    {"underflow", &TensorRow::underflow},
    {"subnormal", &TensorRow::subnormal},
    {"overflow", &TensorRow::overflow},
    {"inf", &TensorRow::inf},
    {"nan", &TensorRow::nan},
};
constexpr NumberColumn kTensorNumbers[] = {
    {"underflow_pct_nonzero", &TensorRow::underflow_pct_nonzero},
    {"underflow_pct_numel", &TensorRow::underflow_pct_numel},
    {"below_min_pct", &TensorRow::below_min_pct},
    {"min_abs", &TensorRow::min_abs},
    {"max_abs", &TensorRow::max_abs},
    {"mean", &TensorRow::mean},
    {"std", &TensorRow::std},
    {"l1", &TensorRow::l1},
    {"l2", &TensorRow::l2},
    {"range_log2", &TensorRow::range_log2},
    {"mse", &TensorRow::mse},
    {"sqnr_db", &TensorRow::sqnr_db},
};

// The bin of a row of histograms.csv.
std::int64_t& Bin(const RunFile& file, const std::string& exponent, ExponentBins& bins) {
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
  if (!HasFile(folder, "steps.csv")) return std::numeric_limits<std::int64_t>::max();
  RunFile file(folder, "steps.csv");
  const std::size_t step = file.Column("step");
  std::int64_t last = 0;
  while (file.Next()) last = file.Integer(step);
  return last;
}

}  // namespace

void ReadScales(const std::string& folder, const std::function<void(const ScaleRow&)>& row) {
  RunFile file(folder, "scales.csv");
  const Place place(file);
  const auto layer = file.Column("layer"), policy = file.Optional("policy");
  const auto limit = file.Optional("limit"), scale_in = file.Optional("scale_in");
  const auto unbound = file.Optional("unbound"), bound = file.Optional("bound");
  const auto pow2 = file.Optional("pow2"), alpha = file.Optional("alpha");
  const auto scale_out = file.Column("scale_out");
  ScaleRow read;
  while (file.Next()) {
    place.Read(file, read);
    read.layer = file.Text(layer);
    read.policy = file.Text(policy);
    read.limit = file.Text(limit);
    read.scale_in = file.Scale(scale_in);
    read.unbound = file.Number(unbound);
    read.bound = file.Number(bound);
    read.pow2 = file.Number(pow2);
    read.alpha = file.Number(alpha);
    read.scale_out = file.Scale(scale_out);
    row(read);
  }
}

void ReadTensors(const std::string& folder, const std::function<void(const TensorRow&)>& row) {
  RunFile file(folder, "underflow.csv");
  const Place place(file);
  const auto layer = file.Column("layer"), tensor = file.Column("tensor");
  const auto format = file.Optional("format"), scale = file.Optional("scale");
  std::vector<std::size_t> integers, numbers;
  for (const auto& column : kTensorIntegers) integers.push_back(file.Optional(column.first));
  for (const auto& column : kTensorNumbers) numbers.push_back(file.Optional(column.first));
  TensorRow read;
  while (file.Next()) {
    place.Read(file, read);
    read.layer = file.Text(layer);
    read.tensor = file.Text(tensor);
    read.format = file.Text(format);
    read.scale = file.Scale(scale);
    for (std::size_t i = 0; i < integers.size(); ++i) {
      read.*kTensorIntegers[i].second = file.Integer(integers[i]);
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      read.*kTensorNumbers[i].second = file.Number(numbers[i]);
    }
    row(read);
  }
}

void ReadHistograms(const std::string& folder,
                    const std::function<void(const HistogramRow&)>& row) {
  RunFile file(folder, "histograms.csv", kHistogramKey);
  const Place place(file);
  const auto layer = file.Column("layer"), tensor = file.Column("tensor");
  const auto scale = file.Optional("scale"), exponent = file.Column("exponent");
  const auto count = file.Column("count");
  const std::int64_t last_step = LastWholeStep(folder);
  HistogramRow group;
  std::set<std::string> seen;  // the group's exponents
  bool open = false;
  while (file.Next()) {
    const std::int64_t step = file.Integer(place.step);
    if (step > last_step) break;  // may not be whole
    const bool same = open && step == group.step && file.Text(tensor) == group.tensor &&
                      file.Text(layer) == group.layer;
    // A retried step has the tensor's exponents once more.
    if (!same || seen.count(file.Text(exponent)) > 0) {
      if (open) row(group);
      group = HistogramRow{};
      seen.clear();
      place.Read(file, group);
      group.layer = file.Text(layer);
      group.tensor = file.Text(tensor);
      group.scale = file.Scale(scale);
      open = true;
    }
    Bin(file, file.Text(exponent), group.bins) = file.Integer(count);
    seen.insert(file.Text(exponent));
  }
  if (open) row(group);
}

}  // namespace ada::study
