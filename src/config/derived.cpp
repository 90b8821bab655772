// What needs no more than a few keys; longer rules have files of their own.
#include "config/derived.h"

#include "data/catalog.h"

namespace ada::config {

std::int64_t MaxRetries(const TrainConfig& train) {
  return train.on_overflow == OnOverflow::kRetry ? train.max_retries : 0;
}

bool DecidesByLoss(const Config& config) {
  return config.evaluate.metric == BestMetric::kLoss || config.task == Task::kLanguage;
}

bool TokensAreBytes(const Config& config) {
  return config.task == Task::kLanguage &&
         data::FactsOf(config.data.dataset).origin == data::Origin::kText;
}

// Tensors and data of other programs may be anything, so the numbers of images do not apply to
// them.
bool HasStandardNormalization(const Config& config) {
  const data::DatasetFacts& facts = data::FactsOf(config.data.dataset);
  return facts.origin != data::Origin::kTensors && facts.origin != data::Origin::kOtherProgram &&
         !facts.has_tokens();
}

}  // namespace ada::config
