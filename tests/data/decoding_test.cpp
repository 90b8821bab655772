// What decoding takes of time and memory, told before it begins.
#include <doctest/doctest.h>

#include "data/images/formats.h"
#include "data/picture_files.h"
#include "data/readers.h"
#include "recorded_pictures.h"
#include "tiny_truth.h"

namespace ada::data {
namespace {

std::uint64_t BytesOf(const std::string& name) {
  const std::string path = RecordedPath("files/" + name);
  return NeedsOfPictureFile(path).bytes - std::filesystem::file_size(path);
}

// A segment of a JPEG file.
Bytes Segment(std::uint8_t marker, const Bytes& content) {
  const std::size_t length = content.size() + 2;
  Bytes segment = {0xFF, marker, static_cast<std::uint8_t>(length >> 8),
                   static_cast<std::uint8_t>(length)};
  segment.insert(segment.end(), content.begin(), content.end());
  return segment;
}

Bytes Joined(const std::vector<Bytes>& parts) {
  Bytes all;
  for (const Bytes& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("decoding: pixels, and of a progressive JPEG or interlaced PNG all that is held") {
    constexpr std::uint64_t kPixels = 128 * 96;
    CHECK(BytesOf("rgb_420.jpg") == 3 * kPixels);
    const PictureSize size = SizeInPictureFile(RecordedPath("files/progressive.jpg"));
    const auto pixels = static_cast<std::uint64_t>(size.height * size.width);
    // Two bytes a coefficient: at least of the brightness, at most of three whole components, each
    // in whole blocks.
    CHECK(BytesOf("progressive.jpg") >= 3 * pixels + 2 * pixels);
    const auto blocks =
        static_cast<std::uint64_t>((size.height + 15) / 8 * ((size.width + 15) / 8));
    CHECK(BytesOf("progressive.jpg") <= 3 * pixels + 3 * 128 * blocks);
    const testing::TempFolder folder;
    PutPicture(folder / "a.png", TinyPicture(10, 20, 3, 0));
    CHECK(NeedsOfPictureFile(folder / "a.png").bytes ==
          600 + std::filesystem::file_size(folder / "a.png"));
  }

  TEST_CASE("decoding: the largest pictures of a split, one for each worker") {
    const testing::TempFolder folder;
    const int sides[] = {10, 40, 20, 30};
    for (int i = 0; i < 4; ++i)
      PutPicture(folder / ("train/a/" + std::to_string(i) + ".png"),
                 TinyPicture(sides[i], 10, 3, i));
    PutPicture(folder / "val/a/0.png", TinyPicture(35, 10, 3, 0));
    const auto bytes = [&](int i) {
      return NeedsOfPictureFile(folder / ("train/a/" + std::to_string(i) + ".png")).bytes;
    };
    const Splits splits = OpenFolder(folder.path());
    const DecodingNeed one = NeedOfDecoding(splits, 1);
    CHECK(one.bytes == bytes(1));
    CHECK(one.largest == folder / "train/a/1.png (10 x 40 pixels)");
    CHECK(NeedOfDecoding(splits, 0).bytes == one.bytes);
    CHECK(NeedOfDecoding(splits, 2).bytes == bytes(1) + bytes(3));
    CHECK(NeedOfDecoding(splits, 9).bytes == bytes(0) + bytes(1) + bytes(2) + bytes(3));
    WriteFile(folder / "train/a/1.png", {});  // its reader says what is wrong with it
    CHECK(NeedOfDecoding(OpenFolder(folder.path()), 1).bytes ==
          NeedsOfPictureFile(folder / "val/a/0.png").bytes);
  }

  TEST_CASE("headers are read once, whoever asks: the files may be gone the next time") {
    const testing::TempFolder folder;
    const auto turned = [&](const std::string& to) {
      std::filesystem::create_directories(std::filesystem::path(folder / to).parent_path());
      std::filesystem::copy_file(
          std::string(ADA_SOURCE_DIR) + "/tests/golden/turned/files/exif6.jpg", folder / to);
    };
    turned("photos/train/a/0.jpg");
    turned("photos/val/a/0.jpg");
    const Splits photos = OpenFolder(folder / "photos");
    const DecodingNeed need = NeedOfDecoding(photos, 1);
    CHECK(need.bytes > 0);
    std::filesystem::remove(folder / "photos/train/a/0.jpg");
    CHECK(NeedOfDecoding(photos, 1).bytes == need.bytes);
    const std::vector<std::string> lines = WarningsOfPictures(photos.train, "train");
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("photos/train/a/0.jpg") != std::string::npos);
    // For label images too, and of the pictures by which they are turned.
    turned("shapes/train/0.jpg");
    turned("shapes/test/0.jpg");
    const PictureNeeds needs = NeedsOfPictureFile(folder / "shapes/train/0.jpg");
    for (const char* label : {"shapes/trainannot/0.png", "shapes/testannot/0.png"})
      PutPicture(folder / label, {needs.stored.height, needs.stored.width, 1,
                                  Bytes(static_cast<std::size_t>(needs.stored.height) *
                                        static_cast<std::size_t>(needs.stored.width))});
    FileChoices choices;
    choices.class_names = {"ground"};
    choices.pictures.applies_exif = true;
    const Splits shapes = OpenCamvid(folder / "shapes", choices);
    const PictureSize stands = {needs.stored.width, needs.stored.height};
    CHECK(shapes.train.label_images->SizeOf(0) == stands);
    std::filesystem::remove(folder / "shapes/train/0.jpg");
    CHECK(shapes.train.label_images->Read(0).size() == stands);
    std::filesystem::remove(folder / "shapes/trainannot/0.png");
    CHECK(shapes.train.label_images->SizeOf(0) == stands);
    CHECK(NeedOfDecoding(shapes, 1).bytes > 0);
  }

  TEST_CASE("decoding: a label image counts beside its picture; made-up images do not") {
    const testing::TempFolder folder;
    PutCamvid(folder, 2, 24, 30);
    const DecodingNeed need = NeedOfDecoding(OpenCamvid(folder.path(), {}), 1);
    CHECK(need.bytes > NeedsOfPictureFile(folder / "train/100.png").bytes);
    CHECK(NeedOfDecoding(MakeSynthetic({8, 8, 3, 2, 4, 4}, 1), 4).bytes == 0);
  }

  TEST_CASE("scans: each counts the blocks of its components, wherever its marker stands") {
    const std::vector<JpegComponent> components = {{1, 100'000}, {2, 7'000}};
    const Bytes start = {0xFF, 0xD8}, end = {0xFF, 0xD9};
    const Bytes first = Segment(0xDA, {1, 1, 0, 0, 0, 0}),
                both = Segment(0xDA, {2, 1, 0, 2, 0, 0, 0, 0});
    const Bytes data = {1, 0xFF, 0, 0xDA, 0xFF, 0xD0, 7, 0xFF, 0xFF};  // a stuffed 0xFF, a restart
    const Bytes comment = Segment(0xFE, {0xFF, 0xDA, 0, 3, 1});  // no scan, though it looks so
    const JpegWork none = WorkOfScans(Joined({start, comment, end}), components);
    CHECK(none.scans == 0);
    CHECK(none.blocks == 0);
    const JpegWork two = WorkOfScans(Joined({start, first, data, both, data, end}), components);
    CHECK(two.scans == 2);
    CHECK(two.blocks == 100'000 + 107'000 + 2 * 1000);
    // What follows the end is none of the picture; a scan that is cut off counts as far as it goes.
    CHECK(WorkOfScans(Joined({start, first, end, first}), components).scans == 1);
    CHECK(WorkOfScans(Joined({start, first, {0xFF, 0xDA, 0}}), components).scans == 1);
    CHECK(WorkOfScans({}, components).scans == 0);
  }
}

}  // namespace ada::data
