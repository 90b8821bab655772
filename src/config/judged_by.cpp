#include "config/judged_by.h"

#include "data/catalog.h"

namespace ada::config {

bool DecidesByLoss(const Config& config) {
  return config.evaluate.metric == BestMetric::kLoss || config.task == Task::kLanguage;
}

bool TokensAreBytes(const Config& config) {
  return config.task == Task::kLanguage &&
         data::FactsOf(config.data.dataset).origin == data::Origin::kText;
}

}  // namespace ada::config
