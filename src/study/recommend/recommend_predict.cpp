// See recommend_predict.h.
#include "study/recommend/recommend_predict.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "what_if/scenario.h"

namespace ada::study {

std::vector<Predicted> PredictLosses(const std::string& folder, const TensorFormats& formats,
                                     const RunNeeds& needs, const config::WhatIfConfig& choice,
                                     const config::ModelConfig& model) {
  std::map<std::string, std::size_t> index;
  std::vector<Predicted> result;
  for (const TensorNeeds& tensor : needs.tensors) {
    index[tensor.name()] = result.size();
    result.emplace_back().tensor = tensor.name();
  }
  what_if::Scenario scenario(choice, model);
  EachHistogramStep(folder, formats, [&](const HistogramStep& step) {
    const auto rows = scenario.Judge(step.step, step.epoch, step.tensors);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const telemetry::WhatIfRow& row = rows[i];
      if (step.tensors[i].bins->inf + step.tensors[i].bins->nan > 0)
        continue;  // as in CollectNeeds
      Predicted& tensor = result[index.at(row.layer + "." + row.tensor)];
      const bool first = tensor.scale_low == 0;
      tensor.scale_low = first ? row.scale : std::min(tensor.scale_low, row.scale);
      tensor.scale_high = std::max(tensor.scale_high, row.scale);
      tensor.overflow += row.overflow;
      if (std::isnan(row.underflow_pct_nonzero)) continue;
      tensor.lost_pct = std::max(tensor.lost_pct, row.underflow_pct_nonzero);
      tensor.unsure_pct = std::max(tensor.unsure_pct, row.underflow_unsure_pct);
    }
  });
  return result;
}

}  // namespace ada::study
