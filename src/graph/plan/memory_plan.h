// Where buffers lie in one block of memory: buffers whose lives overlap never share a byte.
#pragma once
#include <cstddef>
#include <vector>

namespace ada::graph {

// A buffer and its life: from its first write to its last read, in steps of the graph's execution,
// both included.
struct BufferLife {
  std::size_t bytes = 0;
  int first = 0, last = -1;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  // one per buffer, multiples of 64
  std::size_t total = 0;             // bytes of the block
};

// Largest buffers first, each at the lowest place that is free during its whole life (greedy by
// size: Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020,
// section 5).
MemoryPlan PlanMemory(const std::vector<BufferLife>& buffers);

}  // namespace ada::graph
