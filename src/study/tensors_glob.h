// The option --tensors of commands that read a safetensors file.
#pragma once
#include <algorithm>
#include <string>

#include "error.h"
#include "io/shown_text.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"

namespace ada::study {

// Throws ConfigError where `glob` matches no tensor of a file that has some: that is a slip.
// Called by inspect and convert before they read any values.
inline void CheckTensorsGlob(const SafetensorsFile& file, const std::string& glob) {
  const auto matches = [&](const TensorEntry& entry) { return GlobMatch(glob, entry.name); };
  const auto& entries = file.entries();
  // A file without tensors is no fault of the glob.
  if (entries.empty() || std::any_of(entries.begin(), entries.end(), matches)) return;
  throw ConfigError("--tensors " + glob + ": matches none of the " +
                    std::to_string(entries.size()) + " tensors of " + file.path() +
                    "; the first is " + Shown(entries.front().name));
}

}  // namespace ada::study
