// The histograms of a run's tensors, which what-if, recommend and advise judge, and the formats
// that the tensors had.
#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"
#include "judge/histogram_loss.h"
#include "number/stats.h"

namespace ada::study {

// All rows of histograms.csv of one tensor in one step. The bins count unscaled values by exponent;
// `scale` is what the tensor carried.
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

// Whether the run has recorded any of a whole step: its file may be a header alone.
bool HasHistograms(const std::string& folder);

// By layer and tensor.
using TensorFormats = std::map<std::pair<std::string, std::string>, NumberFormat>;
// The formats that each tensor had in the course of a run, which precision.schedule may change.
class FormatHistory {
 public:
  // Steps must rise, tensor by tensor.
  void Add(std::int64_t step, const std::string& layer, const std::string& tensor,
           const NumberFormat& format);
  // The format in this step, before the first one that was added that one; null: it has none.
  const NumberFormat* At(std::int64_t step, const std::string& layer,
                         const std::string& tensor) const;
  TensorFormats Last() const;

  // Whether gradients carried a per-tensor scale on top of the policy's S.
  bool scaled_gradients = false;
  // Whether some step rounded stochastically.
  bool stochastic = false;

 private:
  struct Since {
    std::int64_t step;
    NumberFormat format;
  };
  std::map<std::pair<std::string, std::string>, std::vector<Since>> formats_;
};
// Reads it from underflow.csv; formats saturate where those of the run did. Throws DataError for a
// name that no format has.
FormatHistory ReadFormatHistory(const std::string& folder, const config::Config& config);

// The tensors of one step. They point to bins that last until the callback returns.
struct HistogramStep {
  std::int64_t step = 0, epoch = 0;
  std::vector<judge::HistogramOfTensor> tensors;  // in the order of execution
};
// Calls `judge` for each step of histograms.csv. Throws DataError where it holds none, or a tensor
// that `formats` has not.
void EachHistogramStep(const std::string& folder, const FormatHistory& formats,
                       const std::function<void(const HistogramStep&)>& judge);

}  // namespace ada::study
