// The smallest of what the machine has, what each cgroup allows, and what ulimit allows.
#include <sys/resource.h>

#include <algorithm>
#include <fstream>

#include "io/cgroup.h"
#include "io/memory.h"

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
