// Places buffers by falling size, each into the lowest gap among those that live at the same time.
#include <algorithm>
#include <numeric>

#include "graph/plan/plan.h"

namespace ada::graph {
namespace {

// The alignment of Backend::Allocate.
constexpr std::size_t kAlignment = 64;

std::size_t Aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

bool Overlap(const BufferLife& a, const BufferLife& b) {
  return a.first <= b.last && b.first <= a.last;
}

}  // namespace

// `placed` is sorted by offset, so that one pass over it finds the lowest gap that is large enough
// among the buffers whose lives overlap. Buffers of equal size keep their order, so that the plan
// is the same in every run.
MemoryPlan PlanMemory(const std::vector<BufferLife>& buffers) {
  std::vector<std::size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return buffers[a].bytes > buffers[b].bytes;
  });
  MemoryPlan plan;
  plan.offsets.assign(buffers.size(), 0);
  std::vector<std::size_t> placed;  // by offset
  for (const std::size_t buffer : order) {
    const std::size_t bytes = Aligned(buffers[buffer].bytes);
    std::size_t offset = 0;
    for (const std::size_t other : placed) {
      if (!Overlap(buffers[buffer], buffers[other])) continue;
      if (offset + bytes <= plan.offsets[other]) break;
      offset = std::max(offset, plan.offsets[other] + Aligned(buffers[other].bytes));
    }
    plan.offsets[buffer] = offset;
    plan.total = std::max(plan.total, offset + bytes);
    const auto by_offset = [&](std::size_t a, std::size_t b) {
      return plan.offsets[a] < plan.offsets[b];
    };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), buffer, by_offset), buffer);
  }
  return plan;
}

}  // namespace ada::graph
