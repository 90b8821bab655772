#include "train/assemble/steps.h"

#include <algorithm>

namespace ada::train {

std::int64_t StepsPerEpoch(const config::Config& config, std::int64_t images) {
  const std::int64_t batch = config.data.batch_size;
  return config.data.drop_last ? images / batch : (images + batch - 1) / batch;
}

std::int64_t TotalSteps(const config::Config& config, std::int64_t steps_per_epoch) {
  if (config.train.epochs == 0) return config.train.max_steps;
  const std::int64_t steps = config.train.epochs * steps_per_epoch;
  return config.train.max_steps > 0 ? std::min(steps, config.train.max_steps) : steps;
}

}  // namespace ada::train
