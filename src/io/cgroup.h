// The control groups that this process is in: what a container, a service or a job of a cluster may
// have of the machine. A limit of a parent holds for its children.
#pragma once
#include <string>
#include <vector>

namespace ada {

// A cgroup as the system shows it.
struct CgroupFolder {
  std::string path;     // as the user finds it: without the prefix of a test
  bool second = false;  // of version 2, whose files have other names
};

// The process's own cgroup and its parents up to the mount, of each hierarchy that has `controller`
// ("memory", "cpu"). `root` is a prefix for the paths of /proc and /sys. What cannot be read is
// left out.
std::vector<CgroupFolder> CgroupsOfProcess(const std::string& controller, const std::string& root);

}  // namespace ada
