// A quota is time in each period, which may be spent on any number of cores: a process with more
// threads than that is stopped for the rest of the period.
#include "io/cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <thread>

#include "io/cgroup.h"

namespace ada {
namespace {

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

}  // namespace ada
