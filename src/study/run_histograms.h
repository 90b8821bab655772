// The histograms of a run step by step, each tensor with the format that it had: what what-if and
// recommend judge.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "what_if/step_histograms.h"

namespace ada::study {

// By layer and tensor.
using TensorFormats = std::map<std::pair<std::string, std::string>, NumberFormat>;
// From underflow.csv; saturating where the run's formats did. DataError for a format that no format
// is called.
TensorFormats ReadTensorFormats(const std::string& folder, const config::Config& config);

struct HistogramStep {
  std::int64_t step = 0, epoch = 0;
  std::vector<what_if::HistogramOfTensor> tensors;  // in the order of execution
};
// Calls `judge` for each step of histograms.csv. DataError where it holds none, or a tensor that
// `formats` has not.
void EachHistogramStep(const std::string& folder, const TensorFormats& formats,
                       const std::function<void(const HistogramStep&)>& judge);

}  // namespace ada::study
