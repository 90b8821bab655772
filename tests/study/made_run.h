// The folder of a run, made by hand: its configuration, and tensors whose values are known, counted
// one by one.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "config/load.h"
#include "telemetry/run_logs.h"
#include "temp_folder.h"

namespace ada::study::testing {

using Values = std::vector<float>;

// Counts of rounding values * scale, by the scalar definition.
inline TensorStats CountedOneByOne(const Values& values, const NumberFormat& format, double scale) {
  TensorStats stats;
  stats.full = true;
  stats.numel = static_cast<std::int64_t>(values.size());
  const float factor = static_cast<float>(scale);
  for (const float value : values) {
    const float x = value * factor, rounded = RoundTo(format, x), size = std::fabs(x);
    stats.zeros_before += x == 0;
    stats.zeros_after += rounded == 0;
    stats.underflow += x != 0 && rounded == 0;
    stats.inf += std::isinf(x);
    stats.nan += std::isnan(x);
    stats.overflow += std::isfinite(x) && size >= OverflowThreshold(format);
    if (size > 0 && std::isfinite(size) && (stats.min_abs == 0 || size < stats.min_abs))
      stats.min_abs = size;
    if (!(size <= stats.max_abs)) stats.max_abs = size;
  }
  return stats;
}

inline ExponentBins BinsOf(const Values& values) {
  ExponentBins bins;
  for (const float x : values) {
    if (x == 0) ++bins.zeros;
    if (std::isinf(x)) ++bins.inf;
    if (std::isnan(x)) ++bins.nan;
    if (x != 0 && std::isfinite(x)) ++bins[std::ilogb(x)];
  }
  return bins;
}

// Normally distributed magnitudes around 2^`center`, none of them a power of two.
inline Values Normal(double center, std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Values values;
  while (values.size() < count) {
    const auto x = static_cast<float>(normal(random) * std::exp2(center));
    int exponent = 0;
    if (x != 0 && std::fabs(std::frexp(x, &exponent)) != 0.5f) values.push_back(x);
  }
  return values;
}

class MadeRun {
 public:
  // `more`: sections beside the network and its data; `middle`: its third layer.
  explicit MadeRun(const std::string& more,
                   const std::string& middle = "{name: bn2, kind: batch_norm}")
      : logs_(Made(more, middle), {}, Histograms()) {}

  void Add(std::int64_t step, const std::string& layer, const std::string& tensor,
           const Values& values, const NumberFormat& format = kFp16, double scale = 1) {
    Count(step, layer, tensor, values, format, scale);
    logs_.Histogram(step, Epoch(step), layer, tensor, scale, BinsOf(values));
  }
  // Counts without a histogram.
  void Count(std::int64_t step, const std::string& layer, const std::string& tensor,
             const Values& values, const NumberFormat& format = kFp16, double scale = 1) {
    logs_.Underflow(step, Epoch(step), layer, tensor, format, scale,
                    CountedOneByOne(values, format, scale));
    last_ = step;
  }
  // What has been added is a run whose last step is the last one added.
  void Finish() {
    for (std::int64_t step = 1; step <= last_; ++step)
      logs_.Step({step, Epoch(step), 1, 0.5, 0.1, 1, false, false, 1});
    logs_.Flush();
  }
  std::string path() const { return folder_.path(); }
  std::string config() const { return folder_.Read("config.yaml"); }

 private:
  static std::int64_t Epoch(std::int64_t step) { return 1 + (step - 1) / 10; }
  static telemetry::LogChoice Histograms() {
    telemetry::LogChoice choice;
    choice.histograms = true;
    return choice;
  }
  std::string Made(const std::string& more, const std::string& middle) {
    const std::string text = R"(
name: made
data: {dataset: synthetic, batch_size: 32}
model:
  layers:
    - {name: conv1, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 3, padding: 1}
    - )" + middle + R"(
    - {name: relu2, kind: relu}
    - {name: fc, kind: linear, features: 10}
train: {epochs: 2}
log: {every: 1, histogram_every: 1, statistics: [y, w, dx, dw, dy]}
)" + more;
    folder_.Write("config.yaml", config::ToYaml(config::LoadText(text, "made", {}).config));
    return folder_.path();
  }

  ada::testing::TempFolder folder_;
  telemetry::RunLogs logs_;
  std::int64_t last_ = 1;
};

}  // namespace ada::study::testing
