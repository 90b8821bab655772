// The parts that all sources of samples share, and the answers of those that lack headers or
// places.
#include "data/sample_sources.h"

#include <algorithm>

#include "error.h"

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

void TokenSet::ReadAt(std::int64_t /*place*/, const SequencePlace& /*out*/) const {
  throw InternalError("TokenSet: rows have no places");
}

std::string TokenSet::NameAt(std::int64_t /*place*/) const {
  throw InternalError("TokenSet: rows have no places");
}

std::vector<std::int32_t> SampleOf(const TokenSet& tokens) {
  // At most about this many tokens are read, and as many targets: every `step`-th sequence.
  constexpr std::int64_t kMost = 1 << 22;
  const std::int64_t count = tokens.sequences(), context = tokens.context();
  const std::int64_t wanted = std::max<std::int64_t>(kMost / context, 1);
  const std::int64_t step = std::max<std::int64_t>((count + wanted - 1) / wanted, 1);
  std::vector<std::int32_t> sample;
  for (std::int64_t i = 0; i < count; i += step) {
    sample.resize(sample.size() + static_cast<std::size_t>(2 * context));
    std::int32_t* begin = sample.data() + sample.size() - 2 * context;
    tokens.Read(i, {begin, begin + context});
  }
  return sample;
}

}  // namespace ada::data
