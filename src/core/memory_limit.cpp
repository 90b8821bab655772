// cgroups: /proc/self/cgroup says in which one this process is, /proc/self/mountinfo where its
// hierarchy lies. A limit of a parent holds for its children.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <sstream>
#include <vector>

#include "core/memory.h"
#include "core/text.h"

namespace ada {
namespace {

constexpr std::uint64_t kNone = UINT64_MAX;

// The number that a file begins with; kNone where there is none ("max").
std::uint64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  std::uint64_t number = 0;
  return file >> number ? number : kNone;
}

// Bytes of a line "MemTotal:  123 kB".
std::uint64_t MemoryInfo(const std::string& root, const std::string& name) {
  std::ifstream file(root + "/proc/meminfo");
  std::string word;
  for (std::uint64_t kib = 0; file >> word;)
    if (word == name + ":" && file >> kib) return kib << 10;
  return kNone;
}

std::uint64_t Sum(std::uint64_t a, std::uint64_t b) { return a > kNone - b ? kNone : a + b; }

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// A mounted hierarchy of cgroups that limits memory.
struct Hierarchy {
  bool second = false;      // version 2
  std::string root, mount;  // which of its cgroups lies where
};

// Lines of mountinfo have optional fields before a dash, then type, source and options (proc(5)):
// so places after the dash are counted from it.
std::vector<Hierarchy> Hierarchies(const std::string& root) {
  std::vector<Hierarchy> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> words = Split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 5 || words.end() - dash < 4) continue;
    const bool second = dash[1] == "cgroup2";
    const bool first = dash[1] == "cgroup" && Contains(Split(dash[3], ','), "memory");
    if (first || second) found.push_back({second, words[3], words[4]});
  }
  return found;
}

// The cgroup of this process in a hierarchy, as a path from that hierarchy's own root.
std::optional<std::string> OwnCgroup(const Hierarchy& hierarchy, const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const std::size_t controllers = line.find(':');
    const std::size_t path = line.find(':', controllers + 1);
    if (controllers == std::string::npos || path == std::string::npos) continue;
    const std::string names = line.substr(controllers + 1, path - controllers - 1);
    if (hierarchy.second ? names.empty() : Contains(Split(names, ','), "memory"))
      return line.substr(path + 1);
  }
  return std::nullopt;
}

// The folder of the cgroup: in a container the mount may show a part of the hierarchy alone, or be
// the process's own cgroup already.
std::string CgroupFolder(const Hierarchy& hierarchy, std::string cgroup) {
  const std::string& base = hierarchy.root;
  bool outside = cgroup.find("..") != std::string::npos;
  if (base != "/") {
    const bool within = cgroup == base || cgroup.starts_with(base + "/");
    outside = outside || !within;
    if (within) cgroup = cgroup.substr(base.size());
  }
  return hierarchy.mount + (outside || cgroup == "/" ? "" : cgroup);
}

void Lower(MemoryLimit& limit, std::uint64_t bytes, const std::string& source) {
  if (bytes < limit.bytes) limit = {bytes, source};
}

void LowerByCgroups(MemoryLimit& limit, std::uint64_t swap, const std::string& root) {
  for (const Hierarchy& hierarchy : Hierarchies(root)) {
    const std::optional<std::string> own = OwnCgroup(hierarchy, root);
    if (!own) continue;
    std::string folder = CgroupFolder(hierarchy, *own);
    // From the process's own cgroup up to the mount: the tightest limit on the way holds.
    for (; folder.size() >= hierarchy.mount.size(); folder.resize(folder.rfind('/'))) {
      const std::string file =
          folder + (hierarchy.second ? "/memory.max" : "/memory.limit_in_bytes");
      // Version 1 limits memory and swap together in another file, which is often missing; the
      // machine's swap is the bound there.
      const std::uint64_t own_swap =
          hierarchy.second ? NumberIn(root + folder + "/memory.swap.max") : kNone;
      Lower(limit, Sum(NumberIn(root + file), std::min(swap, own_swap)), file);
      if (folder.rfind('/') == std::string::npos) break;
    }
  }
}

}  // namespace

MemoryLimit SmallestMemoryLimit(const std::string& root) {
  const std::uint64_t swap_total = MemoryInfo(root, "SwapTotal");
  const std::uint64_t swap = swap_total == kNone ? 0 : swap_total;
  MemoryLimit limit{Sum(MemoryInfo(root, "MemTotal"), swap), "the machine"};
  LowerByCgroups(limit, swap, root);
  rlimit own = {};
  if (getrlimit(RLIMIT_AS, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    Lower(limit, own.rlim_cur, "ulimit -v");
  if (getrlimit(RLIMIT_DATA, &own) == 0 && own.rlim_cur != RLIM_INFINITY)
    Lower(limit, own.rlim_cur, "ulimit -d");
  return limit;
}

std::uint64_t AvailableMemory(const std::string& root) { return MemoryInfo(root, "MemAvailable"); }

}  // namespace ada
