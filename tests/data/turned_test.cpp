// WebP, 16-bit gray and EXIF orientations against Pillow (tests/golden/turned), and what the rules
// make of sizes, parts, boxes and label images.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "data/recorded_pictures.h"
#include "data/tiny_files.h"
#include "golden_table.h"
#include "number/random.h"

namespace ada::data {
namespace {

std::string TurnedPath(const std::string& name) {
  return std::string(ADA_SOURCE_DIR) + "/tests/golden/turned/" + name;
}

std::vector<std::uint8_t> PartOfPicture(const Picture& all, const Box& box) {
  std::vector<std::uint8_t> part;
  for (int y = box.top; y < box.top + box.height; ++y) {
    const auto row = all.pixels.begin() + 3 * (std::ptrdiff_t{y} * all.width + box.left);
    part.insert(part.end(), row, row + std::ptrdiff_t{3} * box.width);
  }
  return part;
}

constexpr PictureRules kApplied{true, SixteenBit::kClip};

TEST_SUITE("cpu") {
  TEST_CASE("WebP and EXIF orientations have Pillow's pixels, whole and in parts") {
    const SafetensorsFile pixels = SafetensorsFile::Open(TurnedPath("pixels.safetensors"));
    const testing::GoldenTable table = testing::ReadTable(TurnedPath("images.csv"));
    REQUIRE(table.rows.size() == 16);
    RandomStream random(3, 4);
    for (const testing::GoldenRow& row : table.rows) {
      const std::string name = row.at("file");
      CAPTURE(name);
      const std::string path = TurnedPath("files/" + name);
      const PictureSize stored{std::stoi(row.at("H")), std::stoi(row.at("W"))};
      const int orientation = std::stoi(row.at("orientation"));
      const PictureNeeds needs = NeedsOfPictureFile(path, kApplied);
      CHECK(needs.traits.orientation == orientation);
      CHECK(needs.stored == stored);
      CHECK(needs.size == Turned(stored, orientation));
      CHECK(needs.traits.alpha == name.starts_with("alpha"));
      CHECK(needs.traits.clipped == (name == "grey16.png"));
      CHECK_FALSE(IsCutOff(path));
      CHECK(SamePixels(ReadPicture(path).pixels, pixels, name));
      const Picture turned = ReadPicture(path, kApplied);
      CHECK(turned.size() == needs.size);
      CHECK(SamePixels(turned.pixels, pixels, name + ".turned"));
      const std::vector<std::uint8_t> file = ReadPictureFile(path);
      CHECK(KindOfPicture(file, path)
                .ends_with(orientation == 1 ? std::string()
                                            : ", EXIF orientation " + std::to_string(orientation)));
      const auto below = [&](int n) {
        return static_cast<int>(random.Below(static_cast<std::uint32_t>(n)));
      };
      for (int i = 0; i < 20; ++i) {
        Box box{0, 0, 1 + below(needs.size.height), 1 + below(needs.size.width)};
        box.top = below(needs.size.height - box.height + 1);
        box.left = below(needs.size.width - box.width + 1);
        REQUIRE((DecodePicture(file, path, box, kApplied).pixels == PartOfPicture(turned, box)));
      }
    }
  }

  TEST_CASE("16-bit grey is cut at 255 as Pillow cuts it, or divided by 257") {
    const SafetensorsFile pixels = SafetensorsFile::Open(TurnedPath("pixels.safetensors"));
    const std::string path = TurnedPath("files/grey16.png");
    CHECK(SamePixels(ReadPicture(path, {false, SixteenBit::kClip}).pixels, pixels, "grey16.png"));
    CHECK(SamePixels(ReadPicture(path, {false, SixteenBit::kScale}).pixels, pixels,
                     "grey16.png.scaled"));
  }

  TEST_CASE("a box on the stored picture covers the same pixels after it is turned") {
    const PictureSize stored{4, 7};
    for (int orientation = 1; orientation <= 8; ++orientation) {
      CAPTURE(orientation);
      Picture marked{stored.height, stored.width, 1, std::vector<std::uint8_t>(28)};
      for (int y = 1; y < 3; ++y)
        for (int x = 2; x < 6; ++x) marked.pixels[static_cast<std::size_t>(7 * y + x)] = 1;
      const Picture turned = Turned(marked, orientation);
      const vision::Box box = Turned(vision::Box{1, 2, 3, 6}, stored, orientation);
      for (int y = 0; y < turned.height; ++y)
        for (int x = 0; x < turned.width; ++x) {
          const bool inside = y >= box.y0 && y < box.y1 && x >= box.x0 && x < box.x1;
          REQUIRE(turned.pixels[static_cast<std::size_t>(turned.width * y + x)] ==
                  (inside ? 1 : 0));
        }
    }
  }

  TEST_CASE("an EXIF block that says no orientation, or none that there is, turns nothing") {
    const auto of = [](std::vector<std::uint8_t> tiff) { return OrientationOf(tiff); };
    const std::vector<std::uint8_t> six = {'M',  'M', 0, 42, 0, 0, 0, 8, 0, 1, 1,
                                           0x12, 0,   3, 0,  0, 0, 1, 0, 6, 0, 0};
    CHECK(of(six) == 6);
    std::vector<std::uint8_t> nine = six;
    nine[19] = 9;
    CHECK(of(nine) == 1);
    nine[19] = 0;
    CHECK(of(nine) == 1);
    for (std::size_t size = 0; size < six.size(); ++size)
      CHECK_NOTHROW(of({six.begin(), six.begin() + static_cast<std::ptrdiff_t>(size)}));
    CHECK(of({'M', 'M', 0, 42, 0xFF, 0xFF, 0xFF, 0xFF}) == 1);
    CHECK(of({}) == 1);
  }

  TEST_CASE("every file that is cut short is refused, and known from its end where that tells") {
    const testing::TempFolder folder;
    for (const char* name : {"lossy.webp", "lossless.webp", "exif8.webp", "exif6.png", "exif6.jpg",
                             "alpha_lossless.webp"}) {
      CAPTURE(name);
      const Bytes whole = ReadPictureFile(TurnedPath(std::string("files/") + name));
      for (const double part : {0.3, 0.6, 0.95}) {
        const Bytes cut(
            whole.begin(),
            whole.begin() + static_cast<std::ptrdiff_t>(part * static_cast<double>(whole.size())));
        CHECK_THROWS_AS(DecodePicture(cut, name), DataError);
        WriteFile(folder / "cut", cut);
        CHECK(IsCutOff(folder / "cut"));
      }
    }
  }

  TEST_CASE("the end of a thumbnail is not the end of the picture") {
    const testing::TempFolder folder;
    const std::string path = folder / "photo.jpg";
    for (const char* name : {"exif6.jpg", "exif3.jpg"}) {
      CAPTURE(name);
      const Bytes plain = ReadPictureFile(TurnedPath(std::string("files/") + name));
      // A whole JPEG, its end included, in a segment after the first marker, as cameras write it.
      REQUIRE(plain.size() + 8 < 0xFFFF);
      const auto length = static_cast<std::uint16_t>(plain.size() + 8);
      Bytes segment = {0xFF,
                       0xE1,
                       static_cast<std::uint8_t>(length >> 8),
                       static_cast<std::uint8_t>(length & 0xFF),
                       'E',
                       'x',
                       'i',
                       'f',
                       0,
                       0};
      segment.insert(segment.end(), plain.begin(), plain.end());
      Bytes whole(plain.begin(), plain.begin() + 2);
      whole.insert(whole.end(), segment.begin(), segment.end());
      whole.insert(whole.end(), plain.begin() + 2, plain.end());
      WriteFile(path, whole);
      CHECK_FALSE(IsCutOff(path));
      Bytes followed = whole;  // by bytes that some programs append
      followed.resize(whole.size() + 100'000);
      WriteFile(path, followed);
      CHECK_FALSE(IsCutOff(path));
      // From within the thumbnail to the last byte but one.
      for (std::size_t size = segment.size() / 2; size < whole.size(); size += size / 50 + 1) {
        CAPTURE(size);
        WriteFile(path, {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size)});
        REQUIRE(IsCutOff(path));
      }
      WriteFile(path, {whole.begin(), whole.end() - 1});
      CHECK(IsCutOff(path));
      WriteFile(path,
                {whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(2 + segment.size())});
      CHECK(IsCutOff(path));  // ends with the thumbnail's end
    }
  }

  TEST_CASE("WebP: what cannot be read says so") {
    const Bytes lossy = ReadPictureFile(TurnedPath("files/lossy.webp"));
    const Bytes head(lossy.begin(), lossy.begin() + 40);
    CHECK(MessageOf("-", [&] { DecodePicture(head, "a.webp"); }) ==
          "a.webp: the WebP data is cut off; the picture is damaged");
    Bytes other = lossy;
    std::fill(other.begin() + 20, other.begin() + 30, std::uint8_t{0});
    CHECK(MessageOf("-", [&] { DecodePicture(other, "a.webp"); }).starts_with("a.webp: "));
    CHECK(KindOfPicture(lossy, "a.webp") == "WebP, lossy");
  }
}

}  // namespace
}  // namespace ada::data
