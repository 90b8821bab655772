// The defaults that depend on the policy of `scaling:`.
#pragma once
#include <cstdint>

#include "config/config.h"

namespace ada::config {

// Fills in what is unset: what scaling::FillDefaults does, and train.on_overflow (what the preset
// does). Throws ConfigError, with its place, for bounds that cross.
void FillScalingDefaults(scaling::Settings& scaling, TrainConfig& train);
// The same for a whole configuration; scaling.reference brings precision.weight_gradients in the
// gradients' format, as the authors' program has them, unless they are set.
void FillDefaults(Config& config);

// Attempts that may follow the first of a step.
std::int64_t MaxRetries(const TrainConfig& train);

}  // namespace ada::config
