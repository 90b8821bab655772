// The position of each pixel of an enlarged image between the pixels of the original, the same on
// every backend. Positions are integers over a common denominator, so that a weight is rounded to
// fp32 only once.
#pragma once
#include <cstdint>

#include "number/host_device.h"

namespace ada::backend {

// A position along one axis: between pixels `at` and `at` + 1, whose weights sum to 1. At the last
// pixel `above` is 0, and pixel `at` + 1 must not be read.
struct BetweenPixels {
  int at = 0;
  float below = 1, above = 0;
};

// What lies between two values, along one axis.
ADA_HOST_DEVICE static inline float Between(const BetweenPixels& place, float below, float above) {
  return place.above == 0 ? below : place.below * below + place.above * above;
}

// One axis of `in` pixels that becomes one of `out`. As in PyTorch: with align_corners the centers
// of the first and last pixels meet, o (in - 1) / (out - 1); else the edges do, (o + 1/2) in / out
// - 1/2, held within the pixels' centers.
struct InterpolatedAxis {
  std::int64_t in = 1, out = 1;
  bool align_corners = false;

  ADA_HOST_DEVICE BetweenPixels At(std::int64_t o) const {
    const std::int64_t over = align_corners ? (out > 1 ? out - 1 : 1) : 2 * out;
    std::int64_t place = align_corners ? o * (in - 1) : (2 * o + 1) * in - out;
    place = place < 0 ? 0 : place;
    const std::int64_t at = place / over;
    if (at >= in - 1) return {static_cast<int>(in - 1), 1, 0};
    const double above = static_cast<double>(place % over) / static_cast<double>(over);
    return {static_cast<int>(at), static_cast<float>(1 - above), static_cast<float>(above)};
  }
  // The weight of pixel i at output position o.
  ADA_HOST_DEVICE float Share(std::int64_t i, std::int64_t o) const {
    const BetweenPixels between = At(o);
    return between.at == i ? between.below : between.at + 1 == i ? between.above : 0.0f;
  }
  // The first place that lies at or after pixel i - 1 (and, of i + 2, the first one that pixel i
  // has no part in, where there are some).
  ADA_HOST_DEVICE std::int64_t FirstFrom(std::int64_t i) const {
    if (i <= 0) return 0;
    const std::int64_t place = i - 1;
    if (align_corners) {
      if (in == 1) return place > 0 ? out : 0;
      const std::int64_t first = (place * (out - 1) + in - 2) / (in - 1);
      return first < out ? first : out;
    }
    // ((2 o + 1) in - out) / (2 out) >= place, rounded up; places below 0 count as 0.
    if (place == 0) return 0;
    const std::int64_t first = (2 * place * out + out - in + 2 * in - 1) / (2 * in);
    return first < out ? first : out;
  }
};

}  // namespace ada::backend
