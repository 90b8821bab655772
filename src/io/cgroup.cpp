// /proc/self/cgroup says in which cgroup this process is, /proc/self/mountinfo where its hierarchy
// lies.
#include "io/cgroup.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>

#include "io/text.h"

namespace ada {
namespace {

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// A mounted hierarchy of cgroups.
struct Hierarchy {
  bool second = false;      // version 2
  std::string root, mount;  // which of its cgroups lies where
};

// Lines of mountinfo have optional fields before a dash, then type, source and options (proc(5)):
// so places after the dash are counted from it.
std::vector<Hierarchy> Hierarchies(const std::string& controller, const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = Split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool second = dash[1] == "cgroup2";
    const bool first = dash[1] == "cgroup" && Contains(Split(dash[3], ','), controller);
    if (first || second) found.push_back({second, words[3], words[4]});
  }
  return found;
}

// The cgroup of this process in a hierarchy, as a path from that hierarchy's own root.
std::optional<std::string> OwnCgroup(const Hierarchy& hierarchy, const std::string& controller,
                                     const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t named = line.find(':');
    const std::size_t path = line.find(':', named + 1);
    if (named == std::string::npos || path == std::string::npos) continue;
    const std::string names = line.substr(named + 1, path - named - 1);
    if (hierarchy.second ? names.empty() : Contains(Split(names, ','), controller))
      return line.substr(path + 1);
  }
  return std::nullopt;
}

// The folder of the cgroup: in a container the mount may show a part of the hierarchy alone, or be
// the process's own cgroup already.
std::string FolderOfCgroup(const Hierarchy& hierarchy, std::string cgroup) {
  const std::string& base = hierarchy.root;
  bool outside = cgroup.find("..") != std::string::npos;
  if (base != "/") {
    const bool within = cgroup == base || cgroup.starts_with(base + "/");
    outside = outside || !within;
    if (within) cgroup = cgroup.substr(base.size());
  }
  return hierarchy.mount + (outside || cgroup == "/" ? "" : cgroup);
}

}  // namespace

std::vector<CgroupFolder> CgroupsOfProcess(const std::string& controller, const std::string& root) {
  std::vector<CgroupFolder> found;
  for (const Hierarchy& hierarchy : Hierarchies(controller, root)) {
    const std::optional<std::string> own = OwnCgroup(hierarchy, controller, root);
    if (!own) continue;
    std::string folder = FolderOfCgroup(hierarchy, *own);
    for (; folder.size() >= hierarchy.mount.size(); folder.resize(folder.rfind('/'))) {
      found.push_back({folder, hierarchy.second});
      if (folder.rfind('/') == std::string::npos) break;
    }
  }
  return found;
}

}  // namespace ada
