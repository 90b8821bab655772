// Which GPU each process takes: one of its own, whether processes see the same ones or not.
#include <doctest/doctest.h>

#include <string>

#include "parallel/thread_world.h"
#include "run/assemble/assemble.h"

namespace ada::testing {
namespace {

// GPUs as letters.
run::VisibleDevices Sees(const std::string& names) {
  run::VisibleDevices visible;
  for (const char name : names) visible.ids[static_cast<std::size_t>(visible.count++)][0] = name;
  return visible;
}
std::vector<int> Assigned(const std::vector<std::string>& seen, const std::vector<int>& nodes,
                          int first = 0) {
  std::vector<run::VisibleDevices> visible;
  for (const std::string& names : seen) visible.push_back(Sees(names));
  return run::AssignDevices(visible, nodes, first);
}

TEST_SUITE("cpu") {
  TEST_CASE("each process of a host takes the next GPU that no other has") {
    using Numbers = std::vector<int>;
    CHECK(Assigned({"ab", "ab"}, {0, 0}) == Numbers{0, 1});
    CHECK(Assigned({"abcd", "abcd", "abcd"}, {0, 0, 0}, 1) == Numbers{1, 2, 3});
    CHECK(Assigned({"ab", "ab", "ab", "ab"}, {0, 1, 0, 1}) == Numbers{0, 0, 1, 1});
    // A launcher that shows each its own, or in another order.
    CHECK(Assigned({"a", "b"}, {0, 0}) == Numbers{0, 0});
    CHECK(Assigned({"ab", "ba"}, {0, 0}) == Numbers{0, 0});
    CHECK(Assigned({"ab", "bc", "ba"}, {0, 0, 0}) == Numbers{0, 0, -1});
    CHECK(Assigned({"a", "a", "a"}, {0, 1, 0}) == Numbers{0, 0, -1});
    CHECK(Assigned({"ab", ""}, {0, 0}, 5) == Numbers{-1, -1});
  }

  TEST_CASE("without GPUs: cuda ends all, auto takes the CPU in all") {
    if (!backend::VisibleCudaDevices().empty()) return;
    config::DeviceConfig device;
    device.kind = config::DeviceKind::kCuda, device.threads = 1;
    const auto errors = RunRanks(2, [&](parallel::World& world) {
      step::Team team(world, {});
      run::MakeBackend(device, team);
    });
    for (const auto& error : errors) {
      REQUIRE(error);
      try {
        std::rethrow_exception(error);
      } catch (const Error& e) {
        CHECK(e.exit_code() == 4);
        CHECK(std::string(e.what()).find("device.kind: cuda: rank 0 of 2 (host here): ") == 0);
      }
    }
    device.kind = config::DeviceKind::kAuto;
    for (const auto& error : RunRanks(2, [&](parallel::World& world) {
           step::Team team(world, {});
           const run::ChosenBackend chosen = run::MakeBackend(device, team);
           CHECK(!chosen.has_own_memory);
           CHECK(chosen.reason.find("device auto, and rank 0 of 2 (host here): ") !=
                 std::string::npos);
         }))
      CHECK(!error);
  }
}

}  // namespace
}  // namespace ada::testing
