// The histograms of a run: tensor by tensor, and step by step with the format that each tensor had,
// which is what what-if and recommend judge.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "core/stats.h"
#include "what_if/step_histograms.h"

namespace ada::study {

// All rows of histograms.csv of one tensor in one step.
// The bins count unscaled values by exponent; `scale` is what the tensor carried.
struct TensorHistogram {
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor;
  double scale = 1;
  ExponentBins bins;
};
// Calls `use` for each, in the order of the file, in which steps never go back, up to the last step
// of steps.csv. DataError with file and line; where the run has no such file it names the key of
// the configuration that makes it.
void ReadHistograms(const std::string& folder,
                    const std::function<void(const TensorHistogram&)>& use);

// By layer and tensor.
using TensorFormats = std::map<std::pair<std::string, std::string>, NumberFormat>;
// Reads them from underflow.csv; they saturate where the run's formats did. Throws DataError for a
// name that no format has.
TensorFormats ReadTensorFormats(const std::string& folder, const config::Config& config);

// The tensors of one step. They point to bins that last until the callback returns.
struct HistogramStep {
  std::int64_t step = 0, epoch = 0;
  std::vector<what_if::HistogramOfTensor> tensors;  // in the order of execution
};
// Calls `judge` for each step of histograms.csv. Throws DataError where it holds none, or a tensor
// that `formats` has not.
void EachHistogramStep(const std::string& folder, const TensorFormats& formats,
                       const std::function<void(const HistogramStep&)>& judge);

}  // namespace ada::study
