// How many images make a reduction block: fixed by the shape alone, and the same for all backends,
// so that one specification fits each of them.
#pragma once
#include <algorithm>
#include <cstdint>

#include "core/tensor.h"

namespace ada::backend {

inline std::int64_t PowerOfTwoBelow(std::int64_t x) {
  std::int64_t p = 1;
  while (p * 2 <= x) p *= 2;
  return p;
}

// Images whose columns lie side by side so that 16 of them make a tile of a CPU's matrix unit: 1,
// 2, 4, 8 or 16.
inline int InterleavedImages(std::int64_t width) {
  int interleaved = 1;
  while (width * interleaved <= 8) interleaved *= 2;
  return interleaved;
}
// Images in a reduction block: the power of two that gives at most 16,384 values, but no fewer than
// InterleavedImages. The positions of a sequence lie in one column: matmuls take them as a row of
// pixels (GeometryOf of a LinearSpec), which is long enough by itself.
inline int BlockImages(const Shape& shape) {
  const std::int64_t images = std::max<std::int64_t>(1, 16384 / shape.per_image());
  const bool sequence = shape.w == 1 && shape.h > 1;
  return std::max(static_cast<int>(PowerOfTwoBelow(images)),
                  sequence ? 1 : InterleavedImages(shape.w));
}

}  // namespace ada::backend
