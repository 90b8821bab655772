// Files that are no pictures, and pictures that are damaged: each is refused in words, none
// crashes, and none takes memory for what its header claims.
#include <doctest/doctest.h>

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "data/images/picture.h"
#include "data/recorded_pictures.h"
#include "data/tiny_files.h"
#include "error.h"
#include "number/random.h"

namespace ada::data {
namespace {

std::string Refusal(const Bytes& file) {
  return MessageOf("no folder", [&] { DecodePicture(file, "photo.jpg"); });
}

Bytes BytesOf(std::string_view text) { return {text.begin(), text.end()}; }

std::uint32_t Crc(const Bytes& bytes) {
  return static_cast<std::uint32_t>(crc32(0, bytes.data(), static_cast<unsigned>(bytes.size())));
}

void AppendU32(std::uint32_t value, Bytes* bytes) {
  for (int shift = 24; shift >= 0; shift -= 8)
    bytes->push_back(static_cast<std::uint8_t>(value >> shift));
}

void AppendChunk(std::string_view kind, const Bytes& content, Bytes* png) {
  AppendU32(static_cast<std::uint32_t>(content.size()), png);
  Bytes checked(kind.begin(), kind.end());
  checked.insert(checked.end(), content.begin(), content.end());
  png->insert(png->end(), checked.begin(), checked.end());
  AppendU32(Crc(checked), png);
}

// A PNG of one bit of gray whose header claims that size, with `rows` as its packed data.
Bytes PngOf(std::uint32_t width, std::uint32_t height, const Bytes& rows) {
  Bytes png = BytesOf("\x89PNG\r\n\x1a\n"), header;
  AppendU32(width, &header);
  AppendU32(height, &header);
  for (const std::uint8_t value : {1, 0, 0, 0, 0}) header.push_back(value);
  AppendChunk("IHDR", header, &png);
  Bytes packed(compressBound(rows.size()));
  uLongf size = packed.size();
  REQUIRE(compress(packed.data(), &size, rows.data(), rows.size()) == Z_OK);
  packed.resize(size);
  AppendChunk("IDAT", packed, &png);
  AppendChunk("IEND", {}, &png);
  return png;
}

TEST_SUITE("cpu") {
  TEST_CASE("what is no JPEG or PNG is refused by what it looks like") {
    const std::pair<Bytes, const char*> files[] = {
        {{}, "photo.jpg: is empty; expected a JPEG, PNG or WebP picture"},
        {BytesOf("Hello\nworld"),
         "photo.jpg: is text, which begins with 'Hello'; expected a JPEG, PNG or WebP picture"},
        {BytesOf("GIF89a\1\2"),
         "photo.jpg: is a GIF picture; expected a JPEG, PNG or WebP picture"},
        {BytesOf("II*\1WEBP"),
         "photo.jpg: is no picture of a known kind (it begins with 'II*\\x01WEBP'); expected a "
         "JPEG, PNG or WebP picture"},
        {Bytes(300, 0), "photo.jpg: begins with zero bytes; expected a JPEG, PNG or WebP picture"},
        {BytesOf("\x7f"
                 "ELF\2\1\1"),
         "photo.jpg: is no picture of a known kind (it begins with '\\x7fELF\\x02\\x01\\x01'); "
         "expected a JPEG, PNG or WebP picture"},
        {BytesOf("\x89PNG\r\n"),
         "photo.jpg: is no picture of a known kind (it begins with '\\x89PNG\\x0d\\x0a'); "
         "expected a JPEG, PNG or WebP picture"},
    };
    for (const auto& [file, message] : files) {
      CHECK(Refusal(file) == message);
      const auto& picture = file;
      CHECK(MessageOf("no folder", [&] { SizeOfPicture(picture, "photo.jpg"); }) == message);
    }
  }

  TEST_CASE("a header that claims too many pixels is refused before there is memory for them") {
    const Bytes png = PngOf(60000, 60000, Bytes(1000, 0));
    const std::string message =
        "photo.jpg: its header claims 60000 x 60000 pixels; expected at most 178956970: make the "
        "picture smaller or leave it out";
    CHECK(Refusal(png) == message);
    CHECK(MessageOf("no folder", [&] { SizeOfPicture(png, "photo.jpg"); }) == message);
    // A JPEG's height and width stand after SOF0's length and precision.
    Bytes jpeg = ReadPictureFile(RecordedPath("files/rgb_420.jpg"));
    std::size_t at = 0;
    while (jpeg[at] != 0xFF || jpeg[at + 1] != 0xC0) ++at;
    std::fill_n(jpeg.begin() + static_cast<std::ptrdiff_t>(at) + 5, 4, 0xEA);
    CHECK(Refusal(jpeg).find("claims 60138 x 60138 pixels") != std::string::npos);
  }

  TEST_CASE("a claim that so few bytes cannot hold is refused before there is memory for it") {
    CHECK(Refusal(PngOf(13000, 13000, Bytes(100, 0))).find("cut off") != std::string::npos);
    for (const char* name : {"rgb_420.jpg", "progressive.jpg"}) {
      Bytes jpeg = ReadPictureFile(RecordedPath(std::string("files/") + name));
      std::size_t at = 0;
      while (jpeg[at] != 0xFF || (jpeg[at + 1] & 0xFD) != 0xC0) ++at;
      std::fill_n(jpeg.begin() + static_cast<std::ptrdiff_t>(at) + 5, 4, 0x30);
      CHECK(Refusal(jpeg).find("cut off") != std::string::npos);
    }
  }

  TEST_CASE("a JPEG whose scans go over too many blocks is refused, whatever their number") {
    const Bytes jpeg = ReadPictureFile(RecordedPath("files/progressive.jpg"));
    const auto marker = [&](std::size_t from, auto is_wanted) {
      while (jpeg[from] != 0xFF || !is_wanted(jpeg[from + 1])) ++from;
      return static_cast<std::ptrdiff_t>(from);
    };
    // The first scan again and again: it says the same each time.
    const auto begin = marker(0, [](int code) { return code == 0xDA; });
    const auto end =
        marker(static_cast<std::size_t>(begin) + 2, [](int code) { return code != 0; });
    const Bytes scan(jpeg.begin() + begin, jpeg.begin() + end);
    const auto with_scans = [&](int count) {
      Bytes many(jpeg.begin(), jpeg.begin() + end);
      many.reserve(jpeg.size() + static_cast<std::size_t>(count) * scan.size());
      for (int i = 0; i < count; ++i) many.insert(many.end(), scan.begin(), scan.end());
      many.insert(many.end(), jpeg.begin() + end, jpeg.end());
      return many;
    };
    CHECK(Refusal(with_scans(3)).empty());
    CHECK(Refusal(with_scans(1000)).empty());  // of a small picture: no work to speak of
    const std::string refusal = Refusal(with_scans(100'000));
    CHECK(refusal.starts_with("photo.jpg: the JPEG data goes over "));
    CHECK(
        refusal.ends_with(" blocks to decode; expected at most 100000000: the picture is made to "
                          "take time, or damaged; save it anew or leave it out"));
  }

  TEST_CASE("files that are cut off are refused, wherever the box lies") {
    for (const char* name : {"rgb_420.jpg", "progressive.jpg", "optimized_restart.jpg", "grey.jpg",
                             "cmyk.jpg", "rgb.png", "palette.png", "grey16.png"}) {
      CAPTURE(name);
      const Bytes file = ReadPictureFile(RecordedPath(std::string("files/") + name));
      const bool jpeg = file[0] == 0xFF;
      // After the checksum of a PNG's data stands its end alone, which PIL does not look for.
      const std::size_t needed = jpeg ? file.size() - 1 : file.size() - 12;
      for (std::size_t size = 0; size < needed; size += size + 200 < needed && size > 50 ? 97 : 1) {
        CAPTURE(size);
        const FileBytes cut(file.data(), size);
        CHECK_THROWS_AS(DecodePicture(cut, name), DataError);
        CHECK_THROWS_AS(DecodePicture(cut, name, {0, 0, 2, 2}), DataError);
      }
      CHECK_NOTHROW(DecodePicture(file, name));
    }
    Bytes file = ReadPictureFile(RecordedPath("files/rgb_420.jpg"));
    file.resize(file.size() - 300);
    CHECK(Refusal(file).find("photo.jpg: the JPEG data is cut off (after row ") == 0);
    file = ReadPictureFile(RecordedPath("files/rgb.png"));
    file.resize(file.size() - 300);
    CHECK(Refusal(file) == "photo.jpg: the PNG data is cut off; the picture is damaged");
  }

  TEST_CASE("damage within the data is refused or makes a picture of the right size") {
    RandomStream random(5, 5);
    for (const char* name : {"rgb_420.jpg", "progressive.jpg", "optimized_restart.jpg",
                             "kept_rgb.jpg", "cmyk.jpg", "rgb.png", "palette_transparent.png"}) {
      CAPTURE(name);
      const Bytes file = ReadPictureFile(RecordedPath(std::string("files/") + name));
      int refused = 0;
      for (int i = 0; i < 200; ++i) {
        Bytes damaged = file;
        for (int k = 0; k < 3; ++k)
          damaged[random.Below(static_cast<std::uint32_t>(file.size()))] =
              static_cast<std::uint8_t>(random.NextU32());
        try {
          const Picture picture = DecodePicture(damaged, name);
          CHECK(picture.pixels.size() == static_cast<std::size_t>(picture.height) *
                                             static_cast<std::size_t>(picture.width) * 3);
        } catch (const DataError&) {
          ++refused;
        }
      }
      CHECK(refused > 0);
    }
    Bytes png = ReadPictureFile(RecordedPath("files/rgb.png"));
    png[png.size() - 20] ^= 1;  // within the packed data: its checksum tells
    CHECK(Refusal(png).find("the PNG data cannot be decoded") != std::string::npos);
  }

  TEST_CASE("files that cannot be read") {
    const testing::TempFolder folder;
    CHECK(MessageOf(folder.path(), [&] { ReadPicture(folder / "none.png"); }) ==
          "DIR/none.png: cannot be opened: No such file or directory");
    CHECK(MessageOf(folder.path(), [&] { ReadPicture(folder.path()); }).find("DIR: cannot be") ==
          0);
  }

  TEST_CASE("a PNG that is written reads back, and one that cannot be written is an OutputError") {
    const testing::TempFolder folder;
    const Picture picture = ReadPicture(RecordedPath("files/rgb_444.jpg"));
    WritePng(folder / "a.png", picture);
    CHECK((ReadPicture(folder / "a.png").pixels == picture.pixels));
    CHECK(KindOfPicture(ReadPictureFile(folder / "a.png"), "a") == "PNG, 8-bit RGB");
    Picture gray{2, 3, 1, {0, 50, 100, 150, 200, 255}};
    WritePng(folder / "grey.png", gray);
    CHECK((ReadPicture(folder / "grey.png").pixels ==
           std::vector<std::uint8_t>{0, 0, 0, 50, 50, 50, 100, 100, 100, 150, 150, 150, 200, 200,
                                     200, 255, 255, 255}));
    CHECK_THROWS_AS(WritePng(folder / "no/a.png", picture), OutputError);
    CHECK_THROWS_AS(WritePng(folder.path(), picture), OutputError);
  }
}

}  // namespace
}  // namespace ada::data
