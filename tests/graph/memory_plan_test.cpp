// The memory plan by brute force: no two buffers that live at the same time share a byte.
#include <doctest/doctest.h>

#include <algorithm>

#include "graph/plan/plan.h"
#include "number/random.h"

namespace ada::graph::test {
namespace {

// The most bytes alive at one time: no plan needs less.
std::size_t Peak(const std::vector<BufferLife>& buffers, int steps) {
  std::size_t peak = 0;
  for (int t = 0; t < steps; ++t) {
    std::size_t sum = 0;
    for (const BufferLife& b : buffers) sum += b.first <= t && t <= b.last ? b.bytes : 0;
    peak = std::max(peak, sum);
  }
  return peak;
}

void CheckPlan(const std::vector<BufferLife>& buffers, int steps) {
  const MemoryPlan plan = PlanMemory(buffers);
  for (int t = 0; t < steps; ++t) {
    std::vector<std::pair<std::size_t, std::size_t>> alive;  // [begin, end)
    for (std::size_t i = 0; i < buffers.size(); ++i) {
      const BufferLife& b = buffers[i];
      if (t < b.first || t > b.last) continue;
      CHECK(plan.offsets[i] % 64 == 0);
      CHECK(plan.offsets[i] + b.bytes <= plan.total);
      alive.emplace_back(plan.offsets[i], plan.offsets[i] + b.bytes);
    }
    std::sort(alive.begin(), alive.end());
    for (std::size_t i = 1; i < alive.size(); ++i) CHECK(alive[i - 1].second <= alive[i].first);
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("random lives") {
    RandomStream random(1, StreamId("memory"));
    for (int round = 0; round < 200; ++round) {
      std::vector<BufferLife> buffers(1 + random.Below(40));
      for (BufferLife& b : buffers) {
        b.bytes = 1 + random.Below(1000);
        b.first = static_cast<int>(random.Below(30));
        b.last = b.first + static_cast<int>(random.Below(12));
      }
      CheckPlan(buffers, 42);
    }
  }

  TEST_CASE("a chain of equal buffers needs two, a stack all") {
    std::vector<BufferLife> chain, stack;
    for (int i = 0; i < 20; ++i) {
      chain.push_back({640, i, i + 1});
      stack.push_back({640, i, 39 - i});
    }
    CHECK(PlanMemory(chain).total == 2 * 640);
    CHECK(PlanMemory(stack).total == 20 * 640);
    CHECK(PlanMemory(stack).total == Peak(stack, 40));
    CHECK(PlanMemory({}).total == 0);
  }
}

}  // namespace
}  // namespace ada::graph::test
