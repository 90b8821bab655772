// What a choice of scales and formats would have lost of each tensor of a run.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "study/recommend/tensor_needs.h"
#include "study/run_histograms.h"

namespace ada::study {

// Of one tensor, over all steps with histograms.
struct Predicted {
  std::string tensor;
  double lost_pct = 0;    // of non-zero values, in the worst step
  double unsure_pct = 0;  // what shares the exponent of a threshold there, at most
  double overflow = 0;    // values of all steps
  double scale_low = 0, scale_high = 0;
};

// By tensor of `needs`. `formats`: those that the tensors would have.
std::vector<Predicted> PredictLosses(const std::string& folder, const TensorFormats& formats,
                                     const RunNeeds& needs, const config::WhatIfConfig& choice,
                                     const config::ModelConfig& model);

}  // namespace ada::study
