// The loop over reduction blocks that every elementwise op runs.
#pragma once
#include <algorithm>

#include "backend/cpu/blocks.h"
#include "backend/cpu/context.h"
#include "backend/cpu/merge.h"

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
inline std::int64_t Blocks(const Shape& shape, std::int64_t rows) {
  return BlockCount(rows, BlockImages(shape));
}
// Merges the notes of such a loop.
inline void Finish(Notes& notes, const Shape& shape, const Pass& pass) {
  notes.Finish(pass, Blocks(shape, pass.rows));
}

}  // namespace ada::backend::cpu
