// What this process may use of the machine: cores and memory, or less of them where a container, a
// job of a cluster (a cgroup) or ulimit allows less.
#pragma once
#include <cstdint>
#include <limits>
#include <string>

namespace ada {

// The smallest quota of time among the process's cgroups and their parents.
struct CpuQuota {
  double cores = std::numeric_limits<double>::infinity();  // that it equals; infinite: no quota
  std::string source = {};                                 // "/sys/fs/cgroup/cpu.max"
};
// A quota that cannot be read is none. `root` is a prefix for the paths of /proc and /sys.
CpuQuota SmallestCpuQuota(const std::string& root = "");

// The cores of the affinity mask, or those of the quota rounded up where they are fewer. At
// least 1.
int UsableCores(const std::string& root = "");

// How much memory this process can use: the smallest limit among the machine, its cgroup (a
// container) and its resource limits (ulimit), and a name by which the user can find it again.
struct MemoryLimit {
  std::uint64_t bytes = 0;  // swap included where it may be used
  std::string source;       // "the machine", "/sys/fs/cgroup/memory.max", "ulimit -v"
};

// The smallest of all limits; one that cannot be read is ignored. `root` is a prefix for the paths
// of /proc and /sys.
MemoryLimit SmallestMemoryLimit(const std::string& root = "");
// What the machine could provide now without swapping; UINT64_MAX if it does not tell.
std::uint64_t AvailableMemory(const std::string& root = "");

}  // namespace ada
