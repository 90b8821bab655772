// The loops over reduction blocks that every op runs.
#pragma once
#include <algorithm>

#include "backend/cpu/context.h"
#include "backend/cpu/ops/blocks.h"
#include "backend/cpu/ops/merge.h"

namespace ada::backend::cpu {

// body(image, images, block, worker) for each block of `shape` in the first `rows` images.
template <class Body>
void ForBlocks(const Context& context, const Shape& shape, int rows, Body&& body) {
  const int size = BlockImages(shape);
  context.pool.For(BlockCount(rows, size), [&](std::int64_t block, int worker) {
    const std::int64_t image = block * size;
    body(image, std::min<std::int64_t>(size, rows - image), block, worker);
  });
}

// body(i, n) for the blocks of a chunk of `images` images, which begins with one: images i .. i + n
// of the chunk. In the calling thread.
template <class Body>
void ForBlocksWithin(std::int64_t images, int size, Body&& body) {
  for (std::int64_t i = 0; i < images; i += size) body(i, std::min<std::int64_t>(size, images - i));
}

// body(first, values, segment, worker) for each segment of a parameter of `numel` values.
template <class Body>
void ForSegments(const Context& context, std::int64_t numel, Body&& body) {
  context.pool.For(Segments(numel), [&](std::int64_t segment, int worker) {
    const std::int64_t first = segment * kSegment;
    body(first, std::min(kSegment, numel - first), segment, worker);
  });
}

}  // namespace ada::backend::cpu
