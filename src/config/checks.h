// Checks across sections, and the defaults that depend on other sections.
#pragma once
#include <string>

#include "config/config.h"
#include "config/yaml/node.h"
#include "config/yaml/problems.h"

namespace ada::config {

// Fills name, output and model.classes where the document does not give them, then checks what no
// section can check alone. `file` is the path given.
void Complete(Config& config, const YamlNode& root, const std::string& file, Problems& problems);

}  // namespace ada::config
