#include "study/tensors_glob.h"

#include <algorithm>

#include "core/error.h"
#include "core/shown_text.h"
#include "core/text.h"

namespace ada::study {

void CheckTensorsGlob(const SafetensorsFile& file, const std::string& glob) {
  const auto matches = [&](const TensorEntry& entry) { return GlobMatch(glob, entry.name); };
  const auto& entries = file.entries();
  // A file without tensors is no fault of the glob.
  if (entries.empty() || std::any_of(entries.begin(), entries.end(), matches)) return;
  throw ConfigError("--tensors " + glob + ": matches none of the " +
                    std::to_string(entries.size()) + " tensors of " + file.path() +
                    "; the first is " + Shown(entries.front().name));
}

}  // namespace ada::study
