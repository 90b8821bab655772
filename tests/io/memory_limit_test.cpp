// The smallest of all limits is found in trees of /proc and /sys as containers show them.
#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "io/machine.h"
#include "temp_folder.h"

namespace ada {
namespace {

constexpr std::uint64_t kGiB = 1u << 30;
constexpr char kMachine[] =
    "MemTotal:       16777216 kB\nMemFree:   1 kB\nMemAvailable:    8388608 kB\n"
    "SwapTotal:       1048576 kB\n";
constexpr char kSecond[] = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n";

struct Tree {
  Tree() { folder.Write("proc/meminfo", kMachine); }
  MemoryLimit Limit() const { return SmallestMemoryLimit(folder.path()); }
  testing::TempFolder folder;
};

TEST_SUITE("cpu") {
  TEST_CASE("memory limit: the machine's memory and swap") {
    const Tree tree;
    CHECK(tree.Limit().bytes == 17 * kGiB);
    CHECK(tree.Limit().source == "the machine");
    CHECK(AvailableMemory(tree.folder.path()) == 8 * kGiB);
  }

  TEST_CASE("memory limit: cgroups version 2: a parent's limit holds, and swap is added") {
    const Tree tree;
    tree.folder.Write("proc/self/mountinfo", kSecond);
    tree.folder.Write("proc/self/cgroup", "0::/a/b\n");
    tree.folder.Write("sys/fs/cgroup/a/b/memory.max", "max\n");
    CHECK(tree.Limit().source == "the machine");
    tree.folder.Write("sys/fs/cgroup/a/memory.max", std::to_string(3 * kGiB) + "\n");
    CHECK(tree.Limit().bytes == 4 * kGiB);  // all swap of the machine
    tree.folder.Write("sys/fs/cgroup/a/memory.swap.max", "0\n");
    CHECK(tree.Limit().bytes == 3 * kGiB);
    CHECK(tree.Limit().source == "/sys/fs/cgroup/a/memory.max");
    tree.folder.Write("sys/fs/cgroup/memory.max", std::to_string(kGiB));
    CHECK(tree.Limit().source == "/sys/fs/cgroup/memory.max");
  }

  TEST_CASE("memory limit: cgroups version 1, of which a container sees its own part") {
    const Tree tree;
    tree.folder.Write(
        "proc/self/mountinfo",
        "31 30 0:27 /docker/abc /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu\n"
        "32 30 0:28 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n");
    tree.folder.Write("proc/self/cgroup", "5:memory:/docker/abc/job\n4:cpu:/docker/abc\n");
    tree.folder.Write("sys/fs/cgroup/memory/memory.limit_in_bytes", std::to_string(2 * kGiB));
    CHECK(tree.Limit().bytes == 3 * kGiB);
    tree.folder.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", std::to_string(kGiB));
    CHECK(tree.Limit().bytes == 2 * kGiB);
    CHECK(tree.Limit().source == "/sys/fs/cgroup/memory/job/memory.limit_in_bytes");
    // Version 1 writes a number beyond all memory where there is no limit.
    tree.folder.Write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712");
    CHECK(tree.Limit().source == "/sys/fs/cgroup/memory/memory.limit_in_bytes");
    // A name that only begins as the part does lies outside it: the mount's own limit holds.
    tree.folder.Write("proc/self/cgroup", "5:memory:/docker/abcd\n");
    CHECK(tree.Limit().source == "/sys/fs/cgroup/memory/memory.limit_in_bytes");
  }

  TEST_CASE("memory limit: ulimit, and nothing that can be read") {
    const testing::TempFolder empty;
    CHECK(SmallestMemoryLimit(empty.path()).bytes == UINT64_MAX);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      const rlimit limit = {64 * kGiB, 64 * kGiB};
      setrlimit(RLIMIT_AS, &limit);
      const MemoryLimit found = SmallestMemoryLimit(empty.path());
      _exit(found.bytes == 64 * kGiB && found.source == "ulimit -v" ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(status == 0);
  }
}

}  // namespace
}  // namespace ada
