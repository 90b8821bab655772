// Decoding against the pixels that torchvision's ImageFolder hands out (tests/golden/pictures).
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "data/recorded_pictures.h"
#include "golden_table.h"
#include "number/random.h"

namespace ada::data {
namespace {

// The part of `all` that `box` names.
std::vector<std::uint8_t> Cut(const Picture& all, const Box& box) {
  std::vector<std::uint8_t> part;
  const auto channels = static_cast<std::ptrdiff_t>(all.channels);
  for (int y = box.top; y < box.top + box.height; ++y) {
    const auto row = all.pixels.begin() + (std::ptrdiff_t{y} * all.width + box.left) * channels;
    part.insert(part.end(), row, row + box.width * channels);
  }
  return part;
}

Box RandomBox(RandomStream* random, PictureSize size) {
  const auto below = [&](int n) {
    return static_cast<int>(random->Below(static_cast<std::uint32_t>(n)));
  };
  Box box;
  box.height = 1 + below(size.height);
  box.width = 1 + below(size.width);
  box.top = below(size.height - box.height + 1);
  box.left = below(size.width - box.width + 1);
  return box;
}

TEST_SUITE("cpu") {
  TEST_CASE("pictures of every kind have ImageFolder's pixels, whole and in parts") {
    const SafetensorsFile decoded = Recorded("decoded.safetensors");
    const testing::GoldenTable table = testing::ReadGolden("pictures/images.csv");
    REQUIRE(table.rows.size() == 26);
    RandomStream random(1, 2);
    for (const testing::GoldenRow& row : table.rows) {
      const std::string name = row.at("file");
      CAPTURE(name);
      const std::vector<std::uint8_t> file = ReadPictureFile(RecordedPath("files/" + name));
      const PictureSize size{std::stoi(row.at("H")), std::stoi(row.at("W"))};
      CHECK(SizeOfPicture(file, name) == size);
      CHECK(KindOfPicture(file, name).starts_with(row.at("format")));
      const Picture picture = DecodePicture(file, name);
      CHECK(picture.size() == size);
      CHECK(picture.channels == 3);
      CHECK(SamePixels(picture.pixels, decoded, name));
      for (int i = 0; i < 60; ++i) {
        const Box box = RandomBox(&random, size);
        CAPTURE(box.top);
        CAPTURE(box.left);
        CAPTURE(box.height);
        CAPTURE(box.width);
        const Picture part = DecodePicture(file, name, box);
        CHECK(part.size() == PictureSize{box.height, box.width});
        REQUIRE((part.pixels == Cut(picture, box)));
      }
    }
  }
}

}  // namespace
}  // namespace ada::data
