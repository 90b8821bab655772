// A process that was started alone is a team of one: it hears itself, and its run is what it was
// without a team. Each of several has its part and its name.
#include "step/team.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "error.h"
#include "parallel/thread_world.h"

namespace ada::testing {
namespace {

config::ParallelConfig Asking(int ranks) {
  config::ParallelConfig config;
  config.ranks = ranks;
  return config;
}

TEST_SUITE("cpu") {
  TEST_CASE("a team of one gets back what it gives, and keeps what the configuration says") {
    parallel::World world;
    const std::vector<std::int32_t> mine = {3, 1, 4};
    std::vector<std::int32_t> heard(3), parts(3);
    world.small().AllGather(mine.data(), sizeof(std::int32_t) * mine.size(), heard.data());
    world.large().AllToAll(mine.data(), sizeof(std::int32_t) * mine.size(), parts.data());
    CHECK(heard == mine);
    CHECK(parts == mine);
    for (const int asked : {0, 1}) {
      step::Team team(world, Asking(asked));
      CHECK(team.ranks() == 1);
      CHECK(team.writes());
      CHECK(team.launcher().empty());
      CHECK(team.ranks_to_keep() == asked);
      CHECK(team.ShareOf(7).first == 0);
      CHECK(team.ShareOf(7).count == 7);
      CHECK(team.LargestShare(7) == 7);
      CHECK(team.AllGatherText("alone") == std::vector<std::string>{"alone"});
      CHECK(parallel::GatherAll(team.all(), mine) == mine);
      CHECK(backend::LargestOfAll(team.all(), 2.5) == 2.5);
      CHECK_FALSE(parallel::IsShared(team.communicators().rules));
    }
    CHECK_THROWS_WITH_AS(step::Team(world, Asking(3)),
                         doctest::Contains("parallel.ranks: 3, and this is one process"),
                         ConfigError);
  }

  TEST_CASE("each of several has its share, and says how many there are") {
    const auto errors = RunRanks(3, [](parallel::World& world) {
      step::Team team(world, Asking(0));
      CHECK(team.launcher() == "mpirun -n 3 ");
      CHECK(team.ranks_to_keep() == 3);
      CHECK(team.LargestShare(7) == 3);
      CHECK(team.ShareOf(7).count == (team.rank() == 0 ? 3 : 2));
      CHECK(team.AllGatherText(std::string(static_cast<std::size_t>(team.rank()), 'x')) ==
            std::vector<std::string>{"", "x", "xx"});
      CHECK(parallel::IsShared(team.communicators().rules));
      CHECK_THROWS_AS(step::Team(world, Asking(2)), ConfigError);
    });
    for (const auto& error : errors) CHECK(!error);
  }
}

}  // namespace
}  // namespace ada::testing
