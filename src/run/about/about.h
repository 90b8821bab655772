// The program's version, and lists of what a configuration can choose.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "io/json_output.h"
#include "parallel/world.h"

namespace ada::run {

// Program, compiler, backends and libraries: "name value" lines of --version.
struct Version {
  std::string name, value;
};
std::vector<Version> Versions(const parallel::World& world = parallel::Alone());

// One line each: models, policies, formats, recipes or datasets.
std::vector<std::string> List(const std::string& what);
// The same as the object of a command's --json: `entries` with `name` and `text`, and of formats
// their numbers.
OrderedJson ListJson(const std::string& what);

// Where the data of a configuration come from, in words: the command that fetches them, the
// system's folder, or the user's own.
std::string DataSource(const config::DataConfig& data);

}  // namespace ada::run
