// Cores are the smaller of the affinity mask and the quota of a cgroup, in trees of /proc and /sys
// as containers show them.
#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "io/machine.h"
#include "temp_folder.h"

namespace ada {
namespace {

int CoresOfMask() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  return sched_getaffinity(0, sizeof mask, &mask) == 0 ? CPU_COUNT(&mask) : 1;
}

// What is to be used under a quota of so many cores.
int Expected(double quota) { return std::min(CoresOfMask(), static_cast<int>(std::ceil(quota))); }

TEST_SUITE("cpu") {
  TEST_CASE("cores: without a cgroup those of the affinity mask") {
    const testing::TempFolder empty;
    CHECK(UsableCores(empty.path()) == CoresOfMask());
    CHECK(std::isinf(SmallestCpuQuota(empty.path()).cores));
  }

  TEST_CASE("cores: a quota of version 2 is rounded up, and the tightest parent holds") {
    const testing::TempFolder tree;
    const auto quota = [&] { return SmallestCpuQuota(tree.path()); };
    tree.Write("proc/self/mountinfo",
               "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
    tree.Write("proc/self/cgroup", "0::/a/b\n");
    tree.Write("sys/fs/cgroup/a/b/cpu.max", "max 100000\n");
    CHECK(std::isinf(quota().cores));
    CHECK(UsableCores(tree.path()) == CoresOfMask());
    tree.Write("sys/fs/cgroup/a/b/cpu.max", "150000 100000\n");
    CHECK(quota().cores == 1.5);
    CHECK(UsableCores(tree.path()) == Expected(1.5));
    tree.Write("sys/fs/cgroup/a/cpu.max", "25000 50000\n");
    CHECK(quota().cores == 0.5);
    CHECK(quota().source == "/sys/fs/cgroup/a/cpu.max");
    CHECK(UsableCores(tree.path()) == 1);
    tree.Write("sys/fs/cgroup/a/b/cpu.max", "10000 100000\n");
    CHECK(quota().source == "/sys/fs/cgroup/a/b/cpu.max");
    CHECK(UsableCores(tree.path()) == 1);
    tree.Write("sys/fs/cgroup/a/cpu.max", "max 100000\n");
    tree.Write("sys/fs/cgroup/a/b/cpu.max", "100000000 100000\n");  // more than there are
    CHECK(UsableCores(tree.path()) == std::min(CoresOfMask(), 1000));
    tree.Write("sys/fs/cgroup/a/b/cpu.max", "");
    CHECK(UsableCores(tree.path()) == CoresOfMask());
  }

  TEST_CASE("cores: a quota of version 1, whose controller is mounted with another") {
    const testing::TempFolder tree;
    tree.Write("proc/self/mountinfo",
               "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup "
               "rw,cpu,cpuacct\n"
               "32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree.Write("proc/self/cgroup", "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc/job\n");
    const std::string cpu = "sys/fs/cgroup/cpu,cpuacct/";
    tree.Write(cpu + "cpu.cfs_quota_us", "-1\n");
    tree.Write(cpu + "cpu.cfs_period_us", "100000\n");
    CHECK(UsableCores(tree.path()) == CoresOfMask());
    tree.Write(cpu + "cpu.cfs_quota_us", "120000\n");
    CHECK(SmallestCpuQuota(tree.path()).cores == 1.2);
    CHECK(UsableCores(tree.path()) == Expected(1.2));
    tree.Write(cpu + "job/cpu.cfs_quota_us", "100000\n");
    tree.Write(cpu + "job/cpu.cfs_period_us", "100000\n");
    CHECK(UsableCores(tree.path()) == 1);
    CHECK(SmallestCpuQuota(tree.path()).source == "/" + cpu + "job/cpu.cfs_quota_us");
  }
}

}  // namespace
}  // namespace ada
