// From the text of a configuration to its map of keys, before any key is looked at.
#pragma once
#include <string>
#include <vector>

#include "config/load.h"
#include "config/yaml/node.h"
#include "config/yaml/problems.h"

namespace ada::config {

// The document's map. What keeps the text from being one is thrown at once: nothing else can be
// said.
YamlNode ParseDocument(const std::string& text, Problems& problems);

// Keys given twice in one map: the first stays, with a problem. yaml-cpp keeps both without a word.
void RemoveDuplicates(YamlNode& node, const std::string& path, Problems& problems);

// The keys of --set in their order, as Problems names them.
std::vector<std::string> KeysOf(const Overrides& overrides);

}  // namespace ada::config
