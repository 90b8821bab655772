// What this program is made of.
#pragma once
#include <string>
#include <vector>

#include "parallel/world.h"

namespace ada::train {

// Program, compiler, backends and libraries: "name value" lines of --version.
struct Version {
  std::string name, value;
};
std::vector<Version> Versions(const parallel::World& world = parallel::Alone());

}  // namespace ada::train
