// What a configuration says of how a run is judged, and in which words its results are told.
#pragma once
#include "config/config.h"

namespace ada::config {

// Returns whether the smallest loss tells which evaluation is the best.
bool DecidesByLoss(const Config& config);
// Returns whether tokens are bytes of a text, so that a loss is one of bits a byte; of task
// language alone.
bool TokensAreBytes(const Config& config);

}  // namespace ada::config
