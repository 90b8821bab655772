// Starts MPI where a launcher started several processes, and divides a node's cores among its
// processes.
#include "parallel/world.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "error.h"
#include "io/machine.h"

namespace ada::parallel {
namespace {

// The communicator of a single process: it returns what it is given.
class EchoCommunicator final : public Communicator {
 public:
  int rank() const override { return 0; }
  int ranks() const override { return 1; }
  void AllGather(const void* mine, std::size_t bytes, void* all) override {
    if (bytes > 0) std::memcpy(all, mine, bytes);
  }
  void AllToAll(const void* mine, std::size_t bytes, void* parts) override {
    if (bytes > 0) std::memcpy(parts, mine, bytes);
  }
  void WaitUntil(const std::function<bool()>& done) override { ADA_CHECK(done()); }
  void SetTimeout(double) override {}
  [[noreturn]] void Abort(int exit_code) override { std::exit(exit_code); }
};

std::string Ranks(int first, int last) {
  if (first == last) return "rank " + std::to_string(first);
  return "ranks " + std::to_string(first) + "-" + std::to_string(last);
}

}  // namespace

World::World()
    : World({"this host"}, {0}, "", std::make_unique<EchoCommunicator>(),
            std::make_unique<EchoCommunicator>()) {}
World::World(std::vector<std::string> hosts, std::vector<int> nodes, std::string library,
             std::unique_ptr<Communicator> small, std::unique_ptr<Communicator> large)
    : hosts_(std::move(hosts)),
      nodes_(std::move(nodes)),
      library_(std::move(library)),
      small_(std::move(small)),
      large_(std::move(large)) {}

World& Alone() {
  static World alone;
  return alone;
}

std::string DescribeProcesses(const World& world) {
  const std::vector<int>& nodes = world.nodes();
  const int count = *std::max_element(nodes.begin(), nodes.end()) + 1;
  std::string text = std::to_string(world.ranks()) + " processes on " + std::to_string(count) +
                     (count == 1 ? " host: " : " hosts: ");
  // Runs of ranks on one node.
  for (int first = 0; first < world.ranks();) {
    int last = first;
    const auto at = [&nodes](int rank) { return nodes[static_cast<std::size_t>(rank)]; };
    while (last + 1 < world.ranks() && at(last + 1) == at(first)) ++last;
    text += (first == 0 ? "" : ", ") + world.hosts()[static_cast<std::size_t>(first)] + " (" +
            Ranks(first, last) + ")";
    first = last + 1;
  }
  return text;
}

std::string NameOf(const World& world, int rank) {
  return "rank " + std::to_string(rank) + " of " + std::to_string(world.ranks()) + " (host " +
         world.hosts()[static_cast<std::size_t>(rank)] + ")";
}

int RanksOfNode(const World& world) {
  const int mine = world.nodes()[static_cast<std::size_t>(world.rank())];
  return static_cast<int>(std::count(world.nodes().begin(), world.nodes().end(), mine));
}

namespace {

// What one process may use. Processes of a node whose quota is of one name share it.
struct CoresOfRank {
  cpu_set_t mask;
  double quota;
  std::size_t quota_name;
};

CoresOfRank FindCores(const std::string& root) {
  const CpuQuota quota = SmallestCpuQuota(root);
  CoresOfRank mine = {};
  CPU_ZERO(&mine.mask);
  sched_getaffinity(0, sizeof mine.mask, &mine.mask);
  mine.quota = quota.cores, mine.quota_name = std::hash<std::string>()(quota.source);
  return mine;
}

}  // namespace

// A core that three processes may use counts a third to each; the small addend keeps sums of thirds
// from falling below a whole number.
int CoresOf(World& world, const std::string& root) {
  const CoresOfRank mine = FindCores(root);
  const std::vector<CoresOfRank> all = GatherAll(world.small(), mine);
  const auto on_node = [&world](int rank) {
    return world.nodes()[static_cast<std::size_t>(rank)] ==
           world.nodes()[static_cast<std::size_t>(world.rank())];
  };
  int sharing = 0;
  for (int rank = 0; rank < world.ranks(); ++rank)
    sharing += on_node(rank) && all[static_cast<std::size_t>(rank)].quota_name == mine.quota_name;
  double cores = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (!CPU_ISSET(core, &mine.mask)) continue;
    int users = 0;
    for (int rank = 0; rank < world.ranks(); ++rank)
      users += on_node(rank) && CPU_ISSET(core, &all[static_cast<std::size_t>(rank)].mask) ? 1 : 0;
    cores += 1.0 / users;
  }
  // A process that has the quota to itself rounds it up, as one that was started alone does.
  const double of_quota = sharing == 1 ? std::ceil(mine.quota) : mine.quota / sharing;
  return std::max(1, static_cast<int>(std::min(cores, of_quota) + 1e-6));
}

// Later ranks wait longer, so that the first message is most likely the only one.
void EndAll(World& world, int exit_code, void (*tell)(const std::string& message),
            const std::string& message) {
  constexpr int kEarly = 1000, kEach = 50, kMost = 40;  // milliseconds; ranks that differ
  if (world.rank() > 0)
    std::this_thread::sleep_for(
        std::chrono::milliseconds(kEarly + kEach * std::min(world.rank(), kMost)));
  // An error that all processes find is reported as by a single process.
  const bool of_all = world.rank() == 0 && (exit_code == 2 || exit_code == 5);
  tell(of_all ? message : NameOf(world, world.rank()) + ": " + message);
  world.small().Abort(exit_code);
  std::_Exit(exit_code);  // what the compiler does not see of a virtual call
}

}  // namespace ada::parallel
