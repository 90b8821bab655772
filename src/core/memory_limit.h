// How much memory this process can have: the machine's, less where a cgroup (a container) or a
// resource limit (ulimit) gives less.
#pragma once
#include <cstdint>
#include <string>

namespace ada {

// Holds the smallest limit that was found, and the name under which a user can find it again.
struct MemoryLimit {
  std::uint64_t bytes = 0;  // swap included where it may be used
  std::string source;       // "the machine", "/sys/fs/cgroup/memory.max", "ulimit -v"
};

// The smallest of all limits. What cannot be read limits nothing. `root` stands before the paths of
// /proc and /sys.
MemoryLimit SmallestMemoryLimit(const std::string& root = "");
// What the machine could give at this moment without swapping; UINT64_MAX where it does not say.
std::uint64_t AvailableMemory(const std::string& root = "");

}  // namespace ada
