#include "train/image_result.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"

namespace ada::train {

ImageResult JudgeImage(const float* logits, int classes, std::int32_t label) {
  ADA_CHECK(label >= 0 && label < classes);
  ImageResult result;
  result.label = label;
  const float of_label = logits[label];
  double highest = -INFINITY;
  std::int64_t better = 0;
  for (int k = 0; k < classes; ++k) {
    const float z = logits[k];
    highest = std::max(highest, static_cast<double>(z));
    if (result.prediction < 0 ? !std::isnan(z) : z > logits[result.prediction])
      result.prediction = k;
    better += z > of_label || (z == of_label && k < label) ? 1 : 0;
  }
  double sum = 0;
  for (int k = 0; k < classes; ++k) sum += std::exp(static_cast<double>(logits[k]) - highest);
  const double log_sum = highest + std::log(sum);
  const auto log_probability = [&](std::int32_t k) {
    return static_cast<double>(logits[k]) - log_sum;
  };
  result.probability = result.prediction < 0 ? NAN : std::exp(log_probability(result.prediction));
  result.label_probability = std::exp(log_probability(label));
  result.loss = -log_probability(label);
  result.rank = std::isnan(of_label) ? 0 : better + 1;
  return result;
}

}  // namespace ada::train
