// What is said of processes, and which cores they take.
#include <doctest/doctest.h>
#include <sched.h>

#include <algorithm>
#include <string>
#include <vector>

#include "parallel/thread_world.h"
#include "temp_folder.h"

namespace ada::testing {
namespace {

// Sends nothing, and ends by an exception.
class SilentCommunicator final : public parallel::Communicator {
 public:
  SilentCommunicator(int rank, int ranks) : rank_(rank), ranks_(ranks) {}
  int rank() const override { return rank_; }
  int ranks() const override { return ranks_; }
  void AllGather(const void*, std::size_t, void*) override { throw InternalError("no messages"); }
  void AllToAll(const void*, std::size_t, void*) override { throw InternalError("no messages"); }
  void WaitUntil(const std::function<bool()>&) override {}
  void SetTimeout(double) override {}
  [[noreturn]] void Abort(int code) override { throw DeviceError("ended " + std::to_string(code)); }

 private:
  int rank_, ranks_;
};

parallel::World Places(std::vector<std::string> hosts, std::vector<int> nodes, int rank) {
  const int ranks = static_cast<int>(hosts.size());
  return {std::move(hosts), std::move(nodes), "", std::make_unique<SilentCommunicator>(rank, ranks),
          std::make_unique<SilentCommunicator>(rank, ranks)};
}

std::string told;
void Keep(const std::string& message) { told = message; }

TEST_SUITE("cpu") {
  TEST_CASE("processes are told by host and rank") {
    const parallel::World places = Places({"a", "a", "b", "a"}, {0, 0, 1, 0}, 2);
    CHECK(parallel::DescribeProcesses(places) ==
          "4 processes on 2 hosts: a (ranks 0-1), b (rank 2), a (rank 3)");
    CHECK(parallel::NameOf(places, 2) == "rank 2 of 4 (host b)");
    CHECK(parallel::RanksOfNode(places) == 1);
    CHECK(parallel::RanksOfNode(Places({"a", "a", "b", "a"}, {0, 0, 1, 0}, 3)) == 3);
  }

  TEST_CASE("what ends one process ends all, and names it where the others may not know") {
    parallel::World first = Places({"a", "b"}, {0, 1}, 0), second = Places({"a", "b"}, {0, 1}, 1);
    CHECK_THROWS_WITH(parallel::EndAll(first, 2, Keep, "a key"), "ended 2");
    CHECK(told == "a key");
    CHECK_THROWS_WITH(parallel::EndAll(first, 6, Keep, "no space"), "ended 6");
    CHECK(told == "rank 0 of 2 (host a): no space");
    CHECK_THROWS_WITH(parallel::EndAll(second, 2, Keep, "a key"), "ended 2");
    CHECK(told == "rank 1 of 2 (host b): a key");
  }

  TEST_CASE("processes share the quota of a cgroup that they are in, and have one of their own") {
    TempFolder folder;
    for (const std::string job : {"a", "b"}) {
      folder.Write(job + "/proc/self/mountinfo",
                   "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
      folder.Write(job + "/proc/self/cgroup", "0::/" + job + "\n");
      folder.Write(job + "/sys/fs/cgroup/" + job + "/cpu.max", "50000 100000\n");
    }
    const auto errors = RunRanks(2, [&](parallel::World& world) {
      CHECK(parallel::CoresOf(world, folder / "a") == 1);
      CHECK(parallel::CoresOf(world, folder / (world.rank() == 0 ? "a" : "b")) == 1);
    });
    for (const auto& error : errors) CHECK(!error);
    cpu_set_t mine;
    CPU_ZERO(&mine);
    REQUIRE(sched_getaffinity(0, sizeof mine, &mine) == 0);
    if (CPU_COUNT(&mine) < 4) return;
    folder.Write("a/sys/fs/cgroup/a/cpu.max", "200000 100000\n");
    RunRanks(2,
             [&](parallel::World& world) { CHECK(parallel::CoresOf(world, folder / "a") == 1); });
  }

  TEST_CASE("cores that several processes may use are shared out") {
    cpu_set_t mine;
    CPU_ZERO(&mine);
    REQUIRE(sched_getaffinity(0, sizeof mine, &mine) == 0);
    for (const int ranks : {1, 2, 3, 5}) {
      const auto errors = RunRanks(ranks, [&](parallel::World& world) {
        CHECK(parallel::CoresOf(world) == std::max(1, CPU_COUNT(&mine) / ranks));
      });
      for (const auto& error : errors) CHECK(!error);
    }
    // Processes that are bound to cores of their own keep these.
    if (CPU_COUNT(&mine) < 2) return;
    const auto errors = RunRanks(2, [&](parallel::World& world) {
      cpu_set_t bound;
      CPU_ZERO(&bound);
      int seen = 0;
      for (int core = 0; core < CPU_SETSIZE; ++core)
        if (CPU_ISSET(core, &mine) && seen++ % 2 == world.rank()) CPU_SET(core, &bound);
      REQUIRE(sched_setaffinity(0, sizeof bound, &bound) == 0);
      CHECK(parallel::CoresOf(world) == CPU_COUNT(&bound));
    });
    for (const auto& error : errors) CHECK(!error);
  }
}

}  // namespace
}  // namespace ada::testing
