// --set: changes to the tree before it is read, and what they make meaningless.
// Load calls the first two with the merging of model.file between them; parts of a configuration
// (load_parts.cpp) call ApplyOverrides.
#pragma once
#include <string>
#include <vector>

#include "config/keys/keys.h"
#include "config/yaml/node.h"
#include "config/yaml/problems.h"

namespace ada::config {

// Sets `overrides[i]` in `root` (source i + 1), in order. `document` is the table of the whole
// document. A value of the file that becomes a map is a line of `notes`.
// An override of a map or list replaces it whole; one of a key within makes the maps on its way.
// One that does not parse, or whose path is none, is a problem at its own place.
void SetOverrides(const Overrides& overrides, const Section& document, YamlNode& root,
                  Problems& problems, std::vector<std::string>& notes);
// If --set gave a section's discriminator (a policy, kind, dataset or zoo), drops keys of the file
// that the new choice does not have, one line each in `notes`.
void DropMeaningless(const Section& document, YamlNode& root, const Problems& problems,
                     std::vector<std::string>& notes);
// Both.
void ApplyOverrides(const Overrides& overrides, const Section& document, YamlNode& root,
                    Problems& problems, std::vector<std::string>& notes);

}  // namespace ada::config
