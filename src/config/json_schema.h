// The YAML as a JSON Schema, for editors (completion, checks while typing). Made of the tables that
// the reader uses.
#pragma once
#include <string>

namespace ada::config {

// A document of JSON Schema, draft 2020-12.
std::string JsonSchema();

}  // namespace ada::config
