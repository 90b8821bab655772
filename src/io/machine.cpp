// /proc/self/cgroup says in which cgroup this process is, /proc/self/mountinfo where its hierarchy
// lies. A quota is time in each period, which may be spent on any number of cores: a process with
// more threads than that is stopped for the rest of the period.
#include "io/machine.h"

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "io/text.h"

namespace ada {
namespace {

std::vector<std::string> Split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, at);) parts.push_back(part);
  return parts;
}

// A cgroup as the system shows it: what a container, a service or a job of a cluster may have of
// the machine.
struct CgroupFolder {
  std::string path;     // as the user finds it: without the prefix of a test
  bool second = false;  // of version 2, whose files have other names
};

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

// The process's own cgroup and its parents up to the mount, of each hierarchy that has `controller`
// ("memory", "cpu"); a limit of a parent holds for its children. `root` is a prefix for the paths
// of /proc and /sys. What cannot be read is left out.
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

// "150000 100000" of version 2, "max 100000" being none; the same numbers in two files of version
// 1, with -1 for none. Infinite where there is none.
double CoresOfQuota(const CgroupFolder& cgroup, const std::string& root) {
  double quota = 0, period = 0;
  std::ifstream file(root + cgroup.path + (cgroup.second ? "/cpu.max" : "/cpu.cfs_quota_us"));
  file >> quota;
  if (cgroup.second)
    file >> period;
  else
    std::ifstream(root + cgroup.path + "/cpu.cfs_period_us") >> period;
  return quota > 0 && period > 0 ? quota / period : std::numeric_limits<double>::infinity();
}

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

void Lower(MemoryLimit& limit, std::uint64_t bytes, const std::string& source) {
  if (bytes < limit.bytes) limit = {bytes, source};
}

void LowerByCgroups(MemoryLimit& limit, std::uint64_t swap, const std::string& root) {
  for (const CgroupFolder& cgroup : CgroupsOfProcess("memory", root)) {
    const std::string file =
        cgroup.path + (cgroup.second ? "/memory.max" : "/memory.limit_in_bytes");
    // Version 1 limits memory and swap together in another file, which is often missing; the
    // machine's swap is the bound there.
    const std::uint64_t own_swap =
        cgroup.second ? NumberIn(root + cgroup.path + "/memory.swap.max") : kNone;
    Lower(limit, Sum(NumberIn(root + file), std::min(swap, own_swap)), file);
  }
}

}  // namespace

CpuQuota SmallestCpuQuota(const std::string& root) {
  CpuQuota smallest;
  for (const CgroupFolder& cgroup : CgroupsOfProcess("cpu", root)) {
    const double cores = CoresOfQuota(cgroup, root);
    if (cores < smallest.cores)
      smallest = {cores, cgroup.path + (cgroup.second ? "/cpu.max" : "/cpu.cfs_quota_us")};
  }
  return smallest;
}

int UsableCores(const std::string& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const bool known = sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0;
  const int cores =
      known ? CPU_COUNT(&set) : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const double quota = std::ceil(SmallestCpuQuota(root).cores);
  return quota < cores ? static_cast<int>(quota) : cores;
}

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
