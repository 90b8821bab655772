// CIFAR's binary files: tiny ones through the reader, full-sized ones of zeros through Read.
#include <doctest/doctest.h>

#include "data/readers.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

namespace fs = std::filesystem;

// 2 x 2 pixels, so that a record is short: 13 bytes, or 14 with a coarse label.
DatasetFacts Tiny(const std::string& name) {
  DatasetFacts facts = FactsOf(name);
  facts.height = facts.width = 2;
  return facts;
}

// Room for `images` images.
Dataset Room(const DatasetFacts& facts, std::int64_t images) {
  Dataset dataset;
  dataset.labels.resize(static_cast<std::size_t>(images));
  dataset.pixels.resize(static_cast<std::size_t>(images * facts.per_image()));
  return dataset;
}

Dataset ReadTiny(const DatasetFacts& facts, const std::string& path, std::int64_t images) {
  Dataset dataset = Room(facts, images);
  ReadCifarFile(facts, path, images, "ADVICE", 0, &dataset);
  return dataset;
}

void WriteCifar10(const std::string& folder) {
  for (const std::string_view file : FactsOf("cifar10").train_files) {
    WriteZeros(folder + "/" + std::string(file), 30730000);
  }
  WriteZeros(folder + "/test_batch.bin", 30730000);
}

constexpr char kAdvice10[] = "; fetch it: ada-train fetch cifar10 --to DIR";

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("cifar: planes become pixels, each file at its place") {
    const testing::TempFolder folder;
    const Bytes first = {7, 1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24};
    const Bytes second = {0, 5, 6, 7, 8, 15, 16, 17, 18, 25, 26, 27, 255};
    WriteFile(folder / "a", first);
    WriteFile(folder / "b", second);
    Dataset dataset = Room(Tiny("cifar10"), 2);
    ReadCifarFile(Tiny("cifar10"), folder / "b", 1, "ADVICE", 1, &dataset);
    ReadCifarFile(Tiny("cifar10"), folder / "a", 1, "ADVICE", 0, &dataset);
    CHECK(dataset.labels == std::vector<Label>{7, 0});
    CHECK(dataset.pixels == PixelBytes{1, 11, 21, 2, 12, 22, 3, 13, 23, 4, 14, 24,
                                       5, 15, 25, 6, 16, 26, 7, 17, 27, 8, 18, 255});
  }

  TEST_CASE("cifar: pixels of every image size, nothing beyond the image is written") {
    for (const int side : {1, 2, 3, 4, 5, 6, 7, 8, 13, 32}) {
      DatasetFacts facts = FactsOf("cifar10");
      facts.height = facts.width = side;
      const std::size_t plane = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
      Bytes bytes = {3};
      for (std::size_t i = 0; i < 3 * plane; ++i) {
        bytes.push_back(static_cast<std::uint8_t>(i * 7 + i / plane * 100 + 1));
      }
      const testing::TempFolder folder;
      WriteFile(folder / "f", bytes);
      Dataset dataset = Room(facts, 3);
      std::fill(dataset.pixels.begin(), dataset.pixels.end(), std::uint8_t{99});
      ReadCifarFile(facts, folder / "f", 1, "ADVICE", 1, &dataset);
      CAPTURE(side);
      for (std::size_t i = 0; i < 9 * plane; ++i) {
        const std::size_t in = i - 3 * plane;  // within the second image
        const bool inside = i >= 3 * plane && i < 6 * plane;
        REQUIRE(dataset.pixels[i] == (inside ? bytes[1 + in % 3 * plane + in / 3] : 99));
      }
    }
  }

  TEST_CASE("cifar-100: the fine label is taken") {
    const testing::TempFolder folder;
    WriteFile(folder / "f", {19, 99, 1, 2, 3, 4, 11, 12, 13, 14, 21, 22, 23, 24});
    const Dataset dataset = ReadTiny(Tiny("cifar100"), folder / "f", 1);
    CHECK(dataset.labels == std::vector<Label>{99});
    CHECK(dataset.pixels == PixelBytes{1, 11, 21, 2, 12, 22, 3, 13, 23, 4, 14, 24});
  }

  TEST_CASE("cifar: more images than are read at a time") {
    const testing::TempFolder folder;
    Bytes bytes;
    for (int i = 0; i < 150; ++i) {
      bytes.push_back(static_cast<std::uint8_t>(i % 10));
      bytes.insert(bytes.end(), 12, static_cast<std::uint8_t>(i));
    }
    WriteFile(folder / "f", bytes);
    const Dataset dataset = ReadTiny(Tiny("cifar10"), folder / "f", 150);
    REQUIRE(dataset.images() == 150);
    for (std::size_t i = 0; i < 150; ++i) {
      CHECK(dataset.labels[i] == i % 10);
      CHECK(dataset.pixels[i * 12] == i);
      CHECK(dataset.pixels[i * 12 + 11] == i);
    }
  }

  TEST_CASE("cifar: damaged files") {
    struct Row {
      const char* name;
      Bytes bytes;
      std::string message;
    };
    const Bytes good(26, 1);
    Bytes bad_label = good, bad_coarse(28, 1), bad_fine(28, 1);
    bad_label[13] = 10;
    bad_coarse[0] = 20;
    bad_fine[15] = 100;
    const std::string size = "; expected 26 bytes (2 images of 13 bytes); ADVICE";
    const std::vector<Row> rows = {
        {"cifar10", {}, "DIR/f: byte 0: the data ends here" + size},
        {"cifar10", Bytes(13, 1), "DIR/f: byte 13: the data ends here" + size},
        {"cifar10", Bytes(25, 1), "DIR/f: byte 25: the data ends here" + size},
        {"cifar10", Bytes(39, 1),
         "DIR/f: byte 26: more data than expected (it ends at byte 39)" + size},
        {"cifar10", bad_label, "DIR/f: byte 13: label 10; expected 0 to 9; ADVICE"},
        {"cifar100", bad_coarse, "DIR/f: byte 0: coarse label 20; expected 0 to 19; ADVICE"},
        {"cifar100", bad_fine, "DIR/f: byte 15: label 100; expected 0 to 99; ADVICE"},
    };
    for (const Row& row : rows) {
      const testing::TempFolder folder;
      WriteFile(folder / "f", row.bytes);
      CHECK(MessageOf(folder.path(), [&] { ReadTiny(Tiny(row.name), folder / "f", 2); }) ==
            row.message);
    }
    const testing::TempFolder folder;
    CHECK(MessageOf(folder.path(), [&] { ReadTiny(Tiny("cifar10"), folder / "f", 2); }) ==
          "DIR/f: no such file; ADVICE");
    fs::create_directory(folder / "f");
    CHECK(MessageOf(folder.path(), [&] { ReadTiny(Tiny("cifar10"), folder / "f", 2); }) ==
          "DIR/f: not a regular file; ADVICE");
  }

  TEST_CASE("cifar: the whole set, in the folder or in the archive's subfolder") {
    for (const char* below : {"", "/cifar-10-batches-bin"}) {
      const testing::TempFolder folder;
      WriteCifar10(folder.path() + below);
      const DatasetInfo info = Inspect("cifar10", folder.path());
      CHECK(info.train == 50000);
      CHECK(info.test == 10000);
      CHECK(info.classes == 10);
      CHECK(info.channels == 3);
    }
    const testing::TempFolder folder;
    WriteZeros(folder / "cifar-100-binary/train.bin", 50000 * 3074);
    WriteZeros(folder / "cifar-100-binary/test.bin", 10000 * 3074);
    const Splits splits = Read("cifar100", folder.path());
    CHECK(splits.train.name == "cifar100");
    CHECK(splits.train.images() == 50000);
    CHECK(splits.train.pixels.size() == 50000u * 3072);
    CHECK(splits.test.images() == 10000);
    CHECK(splits.train.classes == 100);
    CHECK(splits.mean == std::vector<double>{0.5071, 0.4865, 0.4409});
    CHECK(splits.std == std::vector<double>{0.2673, 0.2564, 0.2762});
  }

  TEST_CASE("cifar: Inspect and Read name the same damage") {
    const std::string size = "; expected 30730000 bytes (10000 images of 3073 bytes)";
    struct Row {
      const char* name;
      std::int64_t size;  // -1: removed
      std::string message;
    };
    const std::vector<Row> rows = {
        {"data_batch_3.bin", -1, "DIR/data_batch_3.bin: no such file"},
        {"test_batch.bin", -1, "DIR/test_batch.bin: no such file"},
        {"data_batch_5.bin", 3073, "DIR/data_batch_5.bin: byte 3073: the data ends here" + size},
        {"data_batch_1.bin", 30730001,
         "DIR/data_batch_1.bin: byte 30730000: more data than expected (it ends at byte 30730001)" +
             size},
    };
    const testing::TempFolder folder;
    for (const Row& row : rows) {
      WriteCifar10(folder.path());
      fs::remove(folder / row.name);
      if (row.size >= 0) WriteZeros(folder / row.name, static_cast<std::uint64_t>(row.size));
      CHECK(MessageOf(folder.path(), [&] { Inspect("cifar10", folder.path()); }) ==
            row.message + kAdvice10);
      CHECK(MessageOf(folder.path(), [&] { Read("cifar10", folder.path()); }) ==
            row.message + kAdvice10);
    }
  }
}

}  // namespace ada::data
