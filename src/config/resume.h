// Which keys may differ between a run and its continuation.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"

namespace ada::config {

// One line for each key that differs and may not change on a resume: "key: old -> new". Compares
// the complete documents, so no key can be forgotten. Free to change: configs/README.md,
// "Resuming".
std::vector<std::string> ResumeConflicts(const Config& stored, const Config& now);

}  // namespace ada::config
