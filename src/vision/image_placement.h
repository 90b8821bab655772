// The place of an image after its random crop and flip: one rule for the loader on the host and for
// data sets in a backend's memory. Host and device code.
#pragma once
#include <cstdint>

#include "number/host_device.h"
#include "number/random.h"

namespace ada {

// Row y, column x of the result is pixel (y + dy, x + dx) of the stored image, black where there is
// none; then the columns are mirrored if `flip`.
struct Placement {
  std::int64_t dy = 0, dx = 0;
  bool flip = false;
  friend bool operator==(const Placement&, const Placement&) = default;
};

// What may be drawn for an image. Spare rows and columns may differ between images.
struct AugmentSpec {
  int pad = 0;
  bool random_crop = false;  // false: the pad is cut off again
  bool horizontal_flip = false;
  // Rows and columns by which the stored image is larger than the result.
  std::int64_t spare_rows = 0, spare_columns = 0;
};

// An integer from -pad to pad + spare, uniform to 2^-32; pad + spare >= -pad.
ADA_HOST_DEVICE inline std::int64_t CropOffset(std::uint32_t word, int pad, std::int64_t spare) {
  const std::uint64_t choices = static_cast<std::uint64_t>(2 * std::int64_t{pad} + spare + 1);
  return static_cast<std::int64_t>(word * choices >> 32) - pad;
}

// The random choices for the image at position `image` of the data set in `epoch`: dy and dx
// uniform in -pad..pad + spare (torchvision's RandomCrop(size, padding=pad)), a flip in half of the
// cases.
ADA_HOST_DEVICE inline Placement PlaceImage(const AugmentSpec& spec, std::uint64_t seed,
                                            std::int64_t epoch, std::int64_t image) {
  constexpr std::uint64_t kAugmentStream = StreamId("augment");
  Placement place;
  if (!spec.random_crop && !spec.horizontal_flip) return place;
  const auto words =
      Philox(seed, kAugmentStream,
             static_cast<std::uint64_t>(epoch) << 32 | static_cast<std::uint32_t>(image));
  if (spec.random_crop) {
    place.dy = CropOffset(words[0], spec.pad, spec.spare_rows);
    place.dx = CropOffset(words[1], spec.pad, spec.spare_columns);
  }
  place.flip = spec.horizontal_flip && (words[2] >> 31) != 0;
  return place;
}

}  // namespace ada
