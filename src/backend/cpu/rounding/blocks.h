// How work is cut, and the loops over it: reduction blocks and chunks of images, fixed by shapes
// alone so that no sum depends on the number of threads.
//
//   images   0 1 2 3 4 5 6 7 8 9 ...
//   blocks   [0  ][1  ][2  ][3  ]...    about 16K values: one BlockStats each
//   chunks   [0        ][1        ]...  whole blocks of x and y: one call of oneDNN each, in cache
//   groups   [0                  ]...   whole chunks: one partial weight gradient each
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/context.h"
#include "backend/reductions.h"
#include "number/tensor.h"

namespace ada::backend::cpu {

inline std::int64_t BlockCount(std::int64_t rows, int block) { return (rows + block - 1) / block; }

// Parameters and their gradients are cut into segments of so many values: one BlockStats each.
inline constexpr std::int64_t kSegment = 16384;
inline std::int64_t Segments(std::int64_t values) { return (values + kSegment - 1) / kSegment; }

// Images in a chunk of a product: its fp32 input and output fit in a core's own cache.
inline int ChunkImages(const Shape& x, const Shape& y) {
  constexpr std::int64_t kBytes = 256 * 1024;
  const std::int64_t largest = 4 * std::max(x.per_image(), y.per_image());
  const std::int64_t images = PowerOfTwoBelow(std::max<std::int64_t>(1, kBytes / largest));
  return static_cast<int>(std::max<std::int64_t>({images, BlockImages(x), BlockImages(y)}));
}

// Values in a reduction block of this shape at most, in whole lines of the cache of fp32.
inline std::size_t BlockValues(const Shape& shape) {
  return static_cast<std::size_t>((BlockImages(shape) * shape.per_image() + 15) / 16 * 16);
}

// Groups: at most 8 partial weight gradients, 4 where each is large.
inline std::int64_t MostGroups(std::int64_t chunks, std::int64_t weight_values) {
  return std::min<std::int64_t>(chunks, weight_values > (1 << 20) ? 4 : 8);
}
// Chunks in a group.
inline std::int64_t GroupChunks(std::int64_t chunks, std::int64_t weight_values) {
  const std::int64_t groups = MostGroups(chunks, weight_values);
  return (chunks + groups - 1) / groups;
}

// --- Loops ---

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

// The sum of what of_segment(first, values) gives for each segment, added in their order.
template <class OfSegment>
double SumOfSegments(const Context& context, std::int64_t numel, const OfSegment& of_segment) {
  std::vector<double> sums(static_cast<std::size_t>(Segments(numel)));
  ForSegments(context, numel, [&](std::int64_t first, std::int64_t n, std::int64_t segment, int) {
    sums[static_cast<std::size_t>(segment)] = of_segment(first, n);
  });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}
inline double SumOfSquares(const Context& context, const float* x, std::int64_t numel) {
  return SumOfSegments(context, numel, [&](std::int64_t first, std::int64_t n) {
    return context.kernels.sum_squares(x + first, n);
  });
}

}  // namespace ada::backend::cpu
