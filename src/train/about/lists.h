// What there is to choose from, and where data come from.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"

namespace ada::train {

// One line each: models, policies, formats or datasets.
std::vector<std::string> List(const std::string& what);

// Where the data of a configuration come from, in words: the command that fetches them, the
// system's folder, or the user's own.
std::string DataSource(const config::DataConfig& data);

}  // namespace ada::train
