// What has to be laid over a configuration (train --with) to give a section of it the values of
// another: `recommend`, `advise` and `assign` write it.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::study {

// The keys of `section` (scaling or precision) in `now` that have other values in `then`, with
// those as YAML on one line. Keys that only `now` has are reset, where `then` would take them: laid
// over it, a section without them would leave them as they are.
std::vector<std::pair<std::string, std::string>> ChangedKeys(const std::string& section,
                                                             const config::Config& now,
                                                             const config::Config& then);

}  // namespace ada::study
