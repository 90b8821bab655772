// How sums over pixels are divided, the same on every backend: a strip is up to 64 pixels of one
// image, summed in fp32 one after the other; strips are added up in double in their order.
#pragma once
#include <cstdint>

#include "number/host_device.h"

namespace ada::backend {

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
