// --dry-run: what a run would do, without doing it.
#pragma once
#include <iosfwd>

#include "config/config.h"

namespace ada::train {

// Checks configuration and data, prints the layer table and the memory needed; trains nothing.
// measure: also three steps on made-up images, and what an epoch will take.
void DryRun(const config::Config& config, bool measure, std::ostream& out);

}  // namespace ada::train
