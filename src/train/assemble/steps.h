// How many steps a run has.
#pragma once
#include <cstdint>

#include "config/config.h"

namespace ada::train {

// Batches of an epoch over so many training images; the last one may be smaller, and counts only
// without data.drop_last.
std::int64_t StepsPerEpoch(const config::Config& config, std::int64_t images);
// Attempts of the whole run: epochs, or train.max_steps where that is less.
std::int64_t TotalSteps(const config::Config& config, std::int64_t steps_per_epoch);

}  // namespace ada::train
