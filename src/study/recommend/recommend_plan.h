// From what tensors ask for to a configuration: one fixed scale where one serves all gradients,
// else a scale for each layer, and other formats where no scale can help. What it would have lost
// is read from the same histograms.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "study/recommend/recommend.h"
#include "study/recommend/recommend_fragment.h"
#include "study/recommend/recommend_predict.h"
#include "study/recommend/tensor_needs.h"

namespace ada::study {

struct Plan {
  // Scales that serve every dx and dy, and the tensors that set the two ends. Not any(): none does.
  Powers one_scale;
  std::string low_by, high_by;
  std::vector<FormatChange> changes;
  // Where none serves all, or not before formats are changed: the largest at which nothing
  // overflows in the run's own formats, and what it would have lost.
  int compromise_power = 0;
  std::vector<Predicted> compromise;

  bool fixed = false;                // policy fixed or none; else adaptive
  config::Config config;             // the run's, with the recommended scaling and precision
  std::vector<Predicted> predicted;  // of every tensor with a histogram, under `config`
};

Plan MakePlan(const RecommendOptions& options, const config::Config& run, TensorFormats formats,
              const RunNeeds& needs);

}  // namespace ada::study
