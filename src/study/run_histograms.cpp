// See run_histograms.h.
#include "study/run_histograms.h"

#include <deque>

#include "config/load.h"
#include "core/error.h"
#include "study/run_files.h"

namespace ada::study {

TensorFormats ReadTensorFormats(const std::string& folder, const config::Config& config) {
  const bool saturate = config.precision.overflow == config::OverflowKind::kSaturate;
  std::map<std::string, NumberFormat> by_name;
  TensorFormats formats;
  ReadTensors(folder, [&](const TensorRow& row) {
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
  ReadHistograms(folder, [&](const HistogramRow& row) {
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
