// A key that overrides the file's, and the place where it was given.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "error.h"

namespace ada::config {

// A key that overrides the file's: "scaling.scale" and the YAML text of its value. `where` is its
// place in a file of such keys; default: it was given by --set.
struct Override : std::pair<std::string, std::string> {
  using std::pair<std::string, std::string>::pair;
  Location where = {};
};
// In the order given.
using Overrides = std::vector<Override>;

}  // namespace ada::config
