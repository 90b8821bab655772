// The program finds its files by its own place, so an installation can be moved as a whole.
#include "cli/shipped.h"

#include <algorithm>
#include <filesystem>

namespace ada::cli {
namespace {

namespace fs = std::filesystem;

// The first of the folders, seen from the program's own, that has `file`. "": none has.
// The link is read and not argv[0], which may be a name in PATH or a link of the user.
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

// A file that every version has tells the folder from others of the same name.
std::string ShippedConfigs() {
  return Beside({"../share/ada-train/configs", "../configs"}, "fashion_quickstart.yaml").string();
}

std::string FetchScript() {
  const fs::path folder = Beside({"../share/ada-train/scripts", "../data/scripts"}, "fetch.py");
  return folder.empty() ? "" : (folder / "fetch.py").string();
}

std::string ToolScript(const std::string& file) {
  const fs::path folder = Beside({"../share/ada-train/tools", "../tools"}, file.c_str());
  return folder.empty() ? "" : (folder / file).string();
}

std::string Installation() {
  const fs::path configs = ShippedConfigs();
  if (configs.empty()) return "alone";
  // An installed tree is told from a source tree by the names of the folders around the
  // configurations.
  const fs::path share = configs.parent_path();
  if (share.filename() != "ada-train" || share.parent_path().filename() != "share")
    return "source tree";
  const fs::path prefix = share.parent_path().parent_path();
  if (prefix.filename() == "program" && prefix.parent_path().filename() == "ada_train")
    return "as a wheel";
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

// Looked up among the names and not by path, so `name` cannot lead out of the folder.
std::string ShippedPath(const std::string& name) {
  const fs::path root = ShippedConfigs();
  if (root.empty() || name.empty()) return "";
  const std::string prefix = "configs/";
  const std::string inner = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const std::string& known : ShippedNames())
    if (known == inner || known == inner + ".yaml") return (root / known).string();
  return "";
}

}  // namespace ada::cli
