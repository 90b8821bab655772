// The learning rates of a run that has not begun.
#pragma once
#include <cstdint>
#include <iosfwd>

#include "config/config.h"

namespace ada::train {

// step,epoch,lr of every `every`-th step from the first, and of the last, of a run without skipped
// steps, as CSV; numbers read back exactly. steps_per_epoch 0: what the data set gives.
void PrintRates(const config::Config& config, std::int64_t steps_per_epoch, std::int64_t every,
                std::ostream& out);

}  // namespace ada::train
