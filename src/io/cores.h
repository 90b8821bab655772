// How many cores this process can use: those that it may run on, or fewer if a cgroup (a container,
// a job of a cluster) gives it less time on them.
#pragma once
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

}  // namespace ada
