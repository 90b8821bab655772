// How many images make a reduction block: fixed by the shape alone, and the same for all backends,
// so that one specification fits each of them.
#pragma once
#include <algorithm>
#include <cstdint>

#include "number/tensor.h"

namespace ada::backend {

inline std::int64_t PowerOfTwoBelow(std::int64_t x) {
  std::int64_t p = 1;
  while (p * 2 <= x) p *= 2;
  return p;
}

// Number of images whose columns are interleaved so that 16 of them fill a tile of a CPU's matrix
// unit: 1, 2, 4, 8 or 16.
inline int InterleavedImages(std::int64_t width) {
  int interleaved = 1;
  while (width * interleaved <= 8) interleaved *= 2;
  return interleaved;
}
// Images in a reduction block: the largest power of two with at most 16,384 values, but at least
// InterleavedImages. The positions of a sequence are one column: matmuls treat them as a row of
// pixels (GeometryOf of a LinearSpec), which is long enough by itself.
inline int BlockImages(const Shape& shape) {
  const std::int64_t images = std::max<std::int64_t>(1, 16384 / shape.per_image());
  const bool sequence = shape.w == 1 && shape.h > 1;
  return std::max(static_cast<int>(PowerOfTwoBelow(images)),
                  sequence ? 1 : InterleavedImages(shape.w));
}

}  // namespace ada::backend
