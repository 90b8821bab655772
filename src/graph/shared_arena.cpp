// Hands out parts of blocks of shared memory one after the other, and copies what is in use.
#include "graph/shared_arena.h"

#include <algorithm>

namespace ada::graph {
namespace {

backend::SharedMemory PartOf(const backend::SharedMemory& memory, std::size_t first,
                             std::size_t bytes) {
  return {memory.backend + first, memory.host + first, bytes};
}

}  // namespace

// Objects that do not fit into the last block go to a new one; the rest of it stays unused.
backend::SharedMemory SharedArena::Take(std::size_t bytes) {
  const std::size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (blocks_.empty() || blocks_.back().used + rounded > blocks_.back().memory.bytes)
    blocks_.push_back({backend_.AllocateShared(std::max(rounded, block_bytes_)), 0});
  Block& block = blocks_.back();
  const std::size_t first = block.used;
  block.used += rounded;
  return PartOf(block.memory, first, bytes);
}

void SharedArena::Fetch() {
  // Only what is in use is copied.
  for (const Block& block : blocks_)
    if (block.used > 0) backend_.Fetch(PartOf(block.memory, 0, block.used));
}

void SharedArena::Send() {
  for (const Block& block : blocks_) backend_.Send(PartOf(block.memory, 0, block.used));
}

}  // namespace ada::graph
