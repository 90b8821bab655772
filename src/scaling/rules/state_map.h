// State in text that reads back exactly (hexadecimal floats), as checkpoints keep it.
#pragma once
#include <map>
#include <string>

namespace ada::scaling {
using StateMap = std::map<std::string, std::string>;
}  // namespace ada::scaling
