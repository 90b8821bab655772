// Reads what a run wrote into its folder, row by row, while it may still be running: a last row
// that is not whole is left out. Reads only.
#pragma once
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>

#include "config/config.h"
#include "core/exponent_bins.h"
#include "telemetry/run_logs.h"

namespace ada::study {

// Throws DataError saying what is missing where `folder` holds no run; ConfigError where its
// config.yaml cannot be read.
config::Config ReadRunConfig(const std::string& folder);
// Whether the run's folder holds this file.
bool HasFile(const std::string& folder, const std::string& name);

// A row of scales.csv. NaN: an empty field.
struct ScaleRow {
  std::int64_t step = 0, epoch = 0;
  std::string layer, policy, limit;
  double scale_in = 1, unbound = NAN, bound = NAN, pow2 = NAN, alpha = NAN, scale_out = 1;
  bool branch() const { return limit == "branch"; }
};
// A row of underflow.csv. NaN: an empty field.
struct TensorRow {
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor, format;
  double scale = 1;
  std::int64_t numel = 0, zeros_before = 0, zeros_after = 0, underflow = 0;
  std::int64_t subnormal = 0, overflow = 0, inf = 0, nan = 0;
  double underflow_pct_nonzero = NAN, underflow_pct_numel = NAN, below_min_pct = NAN;
  double min_abs = NAN, max_abs = NAN, mean = NAN, std = NAN, l1 = NAN, l2 = NAN;
  double range_log2 = NAN, mse = NAN, sqnr_db = NAN;
};
// All rows of histograms.csv of one tensor in one step.
struct HistogramRow {
  std::int64_t step = 0, epoch = 0;
  std::string layer, tensor;
  double scale = 1;
  ExponentBins bins;
};

// Call `row` for each row of the file, in its order. DataError with file and line; a file that is
// missing is one too, naming the key of the configuration that makes it.
void ReadSteps(const std::string& folder,
               const std::function<void(const telemetry::StepRow&)>& row);
void ReadEvaluations(const std::string& folder,
                     const std::function<void(const telemetry::EvaluationRow&)>& row);
void ReadEvents(const std::string& folder,
                const std::function<void(const telemetry::EventRow&)>& row);
void ReadScales(const std::string& folder, const std::function<void(const ScaleRow&)>& row);
void ReadTensors(const std::string& folder, const std::function<void(const TensorRow&)>& row);
void ReadHistograms(const std::string& folder, const std::function<void(const HistogramRow&)>& row);

}  // namespace ada::study
