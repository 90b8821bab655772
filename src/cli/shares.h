// Options that several commands which train forks have in common.
#pragma once
#include <string>
#include <vector>

namespace ada::cli {

// "0.1%" or "0.001": a share without a unit, or in percent. Throws ConfigError for anything that is
// no decimal number above 0.
double ShareOf(const std::string& option, const std::string& text);

// The formats of an option whose list was cut at its commas: those within a map are its own.
std::vector<std::string> WholeFormats(const std::vector<std::string>& pieces);

}  // namespace ada::cli
