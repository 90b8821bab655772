#include "data/image_store.h"

#include <algorithm>

#include "core/error.h"

namespace ada::data {

PictureNeeds ImageStore::HeaderOf(std::int64_t image) const {
  throw InternalError("ImageStore: " + NameOf(image) + " has no header");
}

Picture CutOut(const std::uint8_t* image, PictureSize size, int channels, const Box& part) {
  ADA_CHECK(part.top >= 0 && part.left >= 0 && part.top + part.height <= size.height &&
            part.left + part.width <= size.width);
  Picture picture{part.height, part.width, channels, {}};
  const auto row = static_cast<std::size_t>(part.width) * static_cast<std::size_t>(channels);
  picture.pixels.resize(static_cast<std::size_t>(part.height) * row);
  for (int y = 0; y < part.height; ++y) {
    const std::int64_t from = (std::int64_t{part.top + y} * size.width + part.left) * channels;
    std::copy_n(image + from, row, picture.pixels.data() + static_cast<std::size_t>(y) * row);
  }
  return picture;
}

}  // namespace ada::data
