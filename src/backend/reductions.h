// How sums over a batch are divided, the same on every backend: how many images make a reduction
// block, which the shape alone fixes, and the strips of pixels of an image.
#pragma once
#include <algorithm>
#include <cstdint>

#include "number/host_device.h"
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

inline constexpr std::int64_t kStripPixels = 64;

struct Strips {
  std::int64_t pixels = 1;  // of an image

  ADA_HOST_DEVICE std::int64_t per_image() const {
    return (pixels + kStripPixels - 1) / kStripPixels;
  }
  // The first pixel of a strip, in its image.
  ADA_HOST_DEVICE std::int64_t Begin(std::int64_t strip) const { return strip * kStripPixels; }
  ADA_HOST_DEVICE std::int64_t Size(std::int64_t strip) const {
    const std::int64_t rest = pixels - strip * kStripPixels;
    return rest < kStripPixels ? rest : kStripPixels;
  }
};

}  // namespace ada::backend
