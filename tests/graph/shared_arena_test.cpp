// Memory that a backend shares with the host: two addresses, one place, no moves.
#include <doctest/doctest.h>

#include "graph/fake_backend.h"
#include "graph/graph.h"

namespace ada::graph::test {
namespace {

// Hands out two memories; Fetch and Send copy at once.
class TwoMemories : public FakeBackend {
 public:
  backend::SharedMemory AllocateShared(std::size_t bytes) override {
    return {Allocate(bytes), Allocate(bytes), bytes};
  }
  void Fetch(const backend::SharedMemory& m) override {
    std::memcpy(m.host, m.backend, m.bytes);
    copied += m.bytes;
  }
  void Send(const backend::SharedMemory& m) override {
    std::memcpy(m.backend, m.host, m.bytes);
    copied += m.bytes;
  }
  std::size_t copied = 0;
};

TEST_SUITE("cpu") {
  TEST_CASE("objects start as they are made, and reach the other side with Send") {
    TwoMemories backend;
    SharedArena arena(backend, 1024);
    const auto decisions = arena.Add<scaling::ScaleDecision>(3);
    CHECK(decisions.backend != decisions.host);
    CHECK(std::isnan(decisions.host[2].bound));
    CHECK(decisions.backend[2].alpha == 0);
    arena.Send();
    CHECK(decisions.backend[2].alpha == 1);
    decisions.backend[1].halvings = 5;
    CHECK(decisions.host[1].halvings == 0);
    arena.Fetch();
    CHECK(decisions.host[1].halvings == 5);
    CHECK(decisions.memory().bytes == 3 * sizeof(scaling::ScaleDecision));
  }

  TEST_CASE("many objects: they stay where they are, and only what is used is copied") {
    TwoMemories backend;
    SharedArena arena(backend, 256);
    std::vector<graph::SharedArray<std::int64_t>> values;
    for (std::size_t i = 0; i < 100; ++i) {
      values.push_back(arena.Add<std::int64_t>(i % 5 == 0 ? 100 : 1));
      CHECK(reinterpret_cast<std::uintptr_t>(values.back().backend) % 16 == 0);
      values.back().backend[0] = static_cast<std::int64_t>(i);
    }
    arena.Fetch();
    for (std::size_t i = 0; i < 100; ++i) CHECK(values[i].host[0] == static_cast<std::int64_t>(i));
    CHECK(backend.copied == 20 * 800 + 80 * 16);
    CHECK(arena.Add<float>(0).count == 0);
  }

  TEST_CASE("on one memory both addresses are the same") {
    FakeBackend backend;
    SharedArena arena(backend, 64);
    const auto value = arena.Add<float>();
    CHECK(value.backend == value.host);
    arena.Send(), arena.Fetch();
    CHECK(*value.host == 0);
  }
}

}  // namespace
}  // namespace ada::graph::test
