#include "cli/shipped.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "cli/commands.h"
#include "core/error.h"
#include "core/text.h"

namespace ada::cli {
namespace {

namespace fs = std::filesystem;

// The first of the folders, seen from the program's own, that has `file`. "": none has.
fs::path Beside(std::initializer_list<const char*> folders, const char* file) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const char* folder : folders) {
    const fs::path path = (program.parent_path() / folder).lexically_normal();
    if (fs::exists(path / file, error)) return path;
  }
  return {};
}

}  // namespace

std::string ShippedConfigs() {
  return Beside({"../share/ada-train/configs", "../configs"}, "fashion_quickstart.yaml").string();
}

std::string FetchScript() {
  const fs::path folder = Beside({"../share/ada-train/scripts", "../data/scripts"}, "fetch.py");
  return folder.empty() ? "" : (folder / "fetch.py").string();
}

std::string Installation() {
  const fs::path configs = ShippedConfigs();
  if (configs.empty()) return "alone";
  const fs::path share = configs.parent_path();
  if (share.filename() != "ada-train" || share.parent_path().filename() != "share")
    return "source tree";
  const fs::path prefix = share.parent_path().parent_path();
  return prefix == "/usr" ? "as a package" : "below " + prefix.string();
}

std::vector<std::string> ShippedNames() {
  std::vector<std::string> names;
  const fs::path root = ShippedConfigs();
  if (root.empty()) return names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".yaml")
      names.push_back(entry.path().lexically_relative(root).string());
  std::sort(names.begin(), names.end());
  return names;
}

std::string ShippedPath(const std::string& name) {
  const fs::path root = ShippedConfigs();
  if (root.empty() || name.empty()) return "";
  const std::string prefix = "configs/";
  const std::string inner = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const std::string& known : ShippedNames())
    if (known == inner || known == inner + ".yaml") return (root / known).string();
  return "";
}

config::Loaded LoadConfig(ConfigArguments& a, config::Overrides before) {
  std::error_code error;
  config::Overrides overrides = std::move(before);
  for (const auto& [key, value] : OverridesOf(a.set)) overrides.emplace_back(key, value);
  const fs::file_status status = fs::status(a.config, error);
  if (status.type() != fs::file_type::not_found) return config::Load(a.config, overrides);
  const std::string shipped = ShippedPath(a.config);
  if (shipped.empty()) {
    const std::string nearest = NearestName(a.config, ShippedNames());
    throw ConfigError(
        a.config + ": no such file, and no shipped configuration of that name" +
        (nearest.empty() ? "" : "; did you mean " + nearest + "?") +
        (nearest.empty() ? "; `ada-train configs` lists them" : " `ada-train configs` lists them"));
  }
  config::Loaded loaded = config::Load(shipped, overrides);
  loaded.notes.insert(loaded.notes.begin(), a.config + ": no file here; taken from " + shipped);
  a.config = shipped;
  return loaded;
}

}  // namespace ada::cli
