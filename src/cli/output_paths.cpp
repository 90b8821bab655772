// Files are written beside their place and renamed to it: a link is replaced, and what it leads to
// stays. So an output is known by its folder and its name, and an input by what it leads to as
// well.
#include <filesystem>
#include <set>

#include "cli/output.h"
#include "error.h"
#include "telemetry/run_folder.h"

namespace ada::cli {
namespace {

namespace fs = std::filesystem;

// The folder is resolved through links, the name is not: a link at the place itself is what is
// replaced.
fs::path PlaceOf(const std::string& path) {
  std::error_code error;
  fs::path whole = fs::absolute(path, error).lexically_normal();
  if (!whole.has_filename()) whole = whole.parent_path();  // a slash at its end
  return fs::weakly_canonical(whole.parent_path(), error) / whole.filename();
}

// /dev/stdout or a pipe may be named several times and cannot be overwritten.
bool IsDevice(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  return fs::exists(status) && !fs::is_regular_file(status) && !fs::is_directory(status);
}

// Whether writing to `place` would replace the input, or the file that a link of the input leads
// to.
bool LeadsTo(const std::string& input, const fs::path& place) {
  std::error_code error;
  return PlaceOf(input) == place || fs::weakly_canonical(input, error) == place;
}

// Whether writing to `place` would replace a file in the folder `input`. What is not there yet is
// none of the files that are read.
bool Holds(const std::string& input, const fs::path& place) {
  std::error_code error;
  if (!fs::is_directory(input, error)) return false;
  const fs::file_status status = fs::symlink_status(place, error);
  if (!fs::exists(status) || fs::is_directory(status)) return false;
  const fs::path folder = fs::canonical(input, error);
  for (fs::path at = place.parent_path(); at.has_relative_path(); at = at.parent_path())
    if (at == folder) return true;
  return place.parent_path() == folder;
}

constexpr char kDataPath[] = "data.path";

}  // namespace

void OutputPaths::Read(const std::string& what, const std::string& path) {
  if (!path.empty()) read_.push_back({what, path});
}

void OutputPaths::Write(const std::string& what, const std::string& path) {
  if (!path.empty() && !IsDevice(path)) written_.push_back({what, path});
}

void OutputPaths::ReadCheckpoint(const std::string& what, const std::string& path) {
  Read(what, path);
  for (const char* ending : {".json", ".safetensors"}) {
    fs::path other = path;
    const bool pair = other.extension() == ".json" || other.extension() == ".safetensors";
    if (pair) Read(what, other.replace_extension(ending).string());
  }
}

void OutputPaths::ReadConfig(const config::Config& config) {
  Read(kDataPath, config.data.path);
  for (const std::string& path : config.data.more_paths) Read(kDataPath, path);
  Read("model.init.weights", config.model.init.weights);
  // Keys come from its file, from those of --with and model.file, and from the command line.
  std::set<std::string> files = {config.file};
  for (const auto& [key, place] : config.places) files.insert(place.file);
  for (const std::string& file : files) {
    Read("configuration", file);
    // A file of model.file stands behind the place that names it: "mine.yaml:3:8: net.yaml".
    if (const std::size_t at = file.rfind(": "); at != std::string::npos)
      Read("model.file", file.substr(at + 2));
  }
}

void OutputPaths::Check() const {
  for (auto output = written_.begin(); output != written_.end(); ++output) {
    const std::string shown = output->what + " " + output->path;
    const fs::path place = PlaceOf(output->path);
    for (auto other = written_.begin(); other != output; ++other)
      if (PlaceOf(other->path) == place)
        throw ConfigError(shown + ": is what " + other->what + " " + other->path +
                          " names, too; expected two places");
    for (const Named& input : read_) {
      const std::string named = " (" + input.what + " " + input.path + "); expected another place";
      if (LeadsTo(input.path, place)) throw ConfigError(shown + ": is what is read" + named);
      if (Holds(input.path, place))
        throw ConfigError(
            shown +
            (input.what == kDataPath ? ": is a file of the data set" : ": is what is read") +
            named);
    }
    // A file that a run writes itself, such as its CSV files, would be mistaken for the run's.
    const std::string run = telemetry::RunThatKeeps(output->path);
    if (!run.empty())
      throw ConfigError(shown + ": belongs to the run in " + run +
                        ", which alone writes there; expected another place");
  }
}

void CheckOutput(const std::string& option, const std::string& path) {
  OutputPaths paths;
  paths.Write(option, path);
  paths.Check();
}

}  // namespace ada::cli
