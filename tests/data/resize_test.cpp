// Resizing and crops against torchvision's on PIL pictures (tests/golden/pictures).
#include "data/images/resize.h"

#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "data/recorded_pictures.h"
#include "error.h"
#include "golden_table.h"
#include "number/random.h"

namespace ada::data {
namespace {

int Whole(const testing::GoldenRow& row, const std::string& column) {
  return std::stoi(row.at(column));
}

// A file of the recordings, or a picture that was made for one of them.
Picture Source(const SafetensorsFile& recorded, const std::string& name) {
  const TensorEntry* made = recorded.Find(name + ".image");
  if (made == nullptr) return ReadPicture(RecordedPath("files/" + name));
  return {static_cast<int>(made->shape[0]), static_cast<int>(made->shape[1]), 3,
          RecordedBytes(recorded, made->name)};
}

Box All(PictureSize size) { return {0, 0, size.height, size.width}; }

Picture Noise(int height, int width, int channels) {
  Picture picture{height, width, channels, {}};
  RandomStream random(7, static_cast<std::uint64_t>(height * 1000 + width));
  for (int i = 0; i < height * width * channels; ++i)
    picture.pixels.push_back(static_cast<std::uint8_t>(random.Below(256)));
  return picture;
}

TEST_SUITE("cpu") {
  TEST_CASE("resizing the shorter side and a crop in the centre are torchvision's") {
    const SafetensorsFile recorded = Recorded("resize.safetensors");
    for (const testing::GoldenRow& row : testing::ReadGolden("pictures/resize.csv").rows) {
      const std::string name = row.at("case");
      CAPTURE(name);
      const Picture picture = Source(recorded, name.substr(0, name.find(':')));
      const int size = Whole(row, "size"), crop = Whole(row, "crop");
      const PictureSize to = ShorterSide(picture.size(), size, name);
      CHECK(to == PictureSize{Whole(row, "resized_H"), Whole(row, "resized_W")});
      const Picture resized = ResizeBox(picture, All(picture.size()), to);
      if (recorded.Find(name + ".resized") != nullptr)
        CHECK(SamePixels(resized.pixels, recorded, name + ".resized"));
      const Box center = CenterBox(to, {crop, crop});
      CHECK(SamePixels(CutBox(resized, center).pixels, recorded, name + ".out"));
      CHECK(SamePixels(ResizeAndCrop(picture, size, {crop, crop}, name).pixels, recorded,
                       name + ".out"));
    }
  }

  TEST_CASE("resizing to a height and a width is Pillow's") {
    const SafetensorsFile recorded = Recorded("resize.safetensors");
    int compared = 0;
    for (const TensorEntry& entry : recorded.entries()) {
      if (!entry.name.starts_with("filters.bilinear.") && !entry.name.starts_with("tall."))
        continue;
      CAPTURE(entry.name);
      const Picture picture = Source(recorded, entry.name.substr(0, entry.name.find('.')));
      const PictureSize to{static_cast<int>(entry.shape[0]), static_cast<int>(entry.shape[1])};
      if (entry.name.ends_with(".image")) continue;
      CHECK(SamePixels(ResizeBox(picture, All(picture.size()), to).pixels, recorded, entry.name));
      ++compared;
    }
    CHECK(compared >= 4);
  }

  TEST_CASE("crops that are resized are torchvision's") {
    const SafetensorsFile recorded = Recorded("resize.safetensors");
    for (const testing::GoldenRow& row : testing::ReadGolden("pictures/resized_crop.csv").rows) {
      CAPTURE(row.at("case"));
      const Picture picture = Source(recorded, row.at("image"));
      const Box box{Whole(row, "top"), Whole(row, "left"), Whole(row, "h"), Whole(row, "w")};
      const int out = Whole(row, "out");
      CHECK(SamePixels(ResizeBox(picture, box, {out, out}).pixels, recorded,
                       "crop" + row.at("case") + ".out"));
    }
  }

  TEST_CASE("every instruction set, any number of channels and parts of the result: same bytes") {
    const std::vector<std::string> kernels = ResizeKernelNames();
    const std::string& narrowest = kernels.back();
    REQUIRE((narrowest == "sse2" || narrowest == "generic"));
    const std::vector<PictureSize> sizes = {{1, 1}, {3, 2}, {17, 40}, {64, 20}, {41, 41}, {9, 130}};
    for (const PictureSize from : sizes) {
      for (const PictureSize to : sizes) {
        for (const int channels : {1, 2, 3, 4, 5, 7}) {
          const Picture picture = Noise(from.height, from.width, channels);
          const Box whole = All(from);
          const Picture all = ResizeBoxWith(narrowest, picture, whole, to, All(to));
          const Box part{to.height / 3, to.width / 4, (to.height + 1) / 2, (to.width + 1) / 2};
          const Picture cut = CutBox(all, part);
          // Channels do not mix.
          const Picture gray = Noise(from.height, from.width, 1);
          CAPTURE(channels);
          for (const std::string& name : kernels) {
            CAPTURE(name);
            CHECK((ResizeBoxWith(name, picture, whole, to, All(to)).pixels == all.pixels));
            CHECK((ResizeBoxWith(name, picture, whole, to, part).pixels == cut.pixels));
          }
        }
      }
    }
  }

  TEST_CASE("channels are resized one like the other") {
    const Picture one = Noise(31, 23, 1);
    const Picture small = ResizeBox(one, {2, 3, 20, 19}, {11, 40});
    for (const int channels : {2, 3, 4, 6}) {
      Picture many{31, 23, channels, {}};
      for (const std::uint8_t value : one.pixels)
        for (int c = 0; c < channels; ++c)
          many.pixels.push_back(static_cast<std::uint8_t>(c == 1 ? 255 - value : value));
      const Picture result = ResizeBox(many, {2, 3, 20, 19}, {11, 40});
      bool same = true;
      for (std::size_t i = 0; i < small.pixels.size(); ++i)
        for (std::size_t c = 0; c < static_cast<std::size_t>(channels); ++c)
          if (c != 1)
            same = same &&
                   result.pixels[i * static_cast<std::size_t>(channels) + c] == small.pixels[i];
      CHECK(same);
    }
  }

  TEST_CASE("centre boxes round halves to even and reach beyond small pictures") {
    CHECK(CenterBox({10, 13}, {5, 10}) == Box{2, 2, 5, 10});  // 2.5 and 1.5
    CHECK(CenterBox({11, 12}, {4, 5}) == Box{4, 4, 4, 5});    // 3.5 and 3.5
    CHECK(CenterBox({4, 5}, {7, 8}) == Box{-1, -1, 7, 8});
    CHECK_THROWS_AS(ShorterSide({1, 1000000}, 224, "wide.png"), DataError);
  }

  TEST_CASE("mirroring") {
    Picture picture{2, 3, 2, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}};
    FlipColumns(&picture);
    CHECK(picture.pixels == std::vector<std::uint8_t>{5, 6, 3, 4, 1, 2, 11, 12, 9, 10, 7, 8});
  }
}

}  // namespace
}  // namespace ada::data
