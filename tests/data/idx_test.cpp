// IDX files of MNIST's shape, plain and gzip, whole and damaged.
#include <doctest/doctest.h>

#include "data/dataset.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

constexpr std::uint32_t kImages = 0x803, kLabels = 0x801;
constexpr std::size_t kSize = 28 * 28;

// Pixels and labels that tell images apart.
Bytes Pixels(std::size_t images) {
  Bytes pixels(images * kSize);
  for (std::size_t i = 0; i < pixels.size(); ++i) {
    pixels[i] = static_cast<std::uint8_t>(i * 7 + i / kSize);
  }
  return pixels;
}
Bytes Plain(const PixelBytes& pixels) { return {pixels.begin(), pixels.end()}; }
Bytes Labels(std::size_t images) {
  Bytes labels(images);
  for (std::size_t i = 0; i < images; ++i) labels[i] = static_cast<std::uint8_t>(9 - i % 10);
  return labels;
}
std::vector<Label> Wide(const Bytes& labels) { return {labels.begin(), labels.end()}; }

struct Files {
  Bytes train_images = Idx(kImages, {12, 28, 28}, Pixels(12));
  Bytes train_labels = Idx(kLabels, {12}, Labels(12));
  Bytes test_images = Idx(kImages, {3, 28, 28}, Pixels(3));
  Bytes test_labels = Idx(kLabels, {3}, Labels(3));
};

void Write(const std::string& folder, const Files& files, bool packed) {
  const auto write = [&](const char* name, const Bytes& bytes) {
    const std::string path = folder + "/" + name;
    WriteFile(packed ? path + ".gz" : path, packed ? Gzip(bytes) : bytes);
  };
  write("train-images-idx3-ubyte", files.train_images);
  write("train-labels-idx1-ubyte", files.train_labels);
  write("t10k-images-idx3-ubyte", files.test_images);
  write("t10k-labels-idx1-ubyte", files.test_labels);
}

constexpr char kAdvice[] = "; fetch it: ada-train fetch mnist --to DIR";

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("idx: plain and gzip, any folder that is known") {
    for (const bool packed : {false, true}) {
      for (const char* below : {"", "/MNIST/raw", "/raw"}) {
        const testing::TempFolder folder;
        Write(folder.path() + below, {}, packed);
        const Splits splits = Read("mnist", folder.path());
        CHECK(Plain(splits.train.pixels) == Pixels(12));
        CHECK(splits.train.labels == Wide(Labels(12)));
        CHECK(Plain(splits.test.pixels) == Pixels(3));
        CHECK(splits.test.labels == Wide(Labels(3)));
        CHECK(splits.train.height == 28);
        CHECK(splits.train.width == 28);
        CHECK(splits.train.channels == 1);
        CHECK(splits.mean == std::vector<double>{0.1307});
        CHECK(splits.std == std::vector<double>{0.3081});
        const DatasetInfo info = Inspect("fashion_mnist", folder.path() + below);
        CHECK(info.train == 12);
        CHECK(info.test == 3);
      }
    }
  }

  TEST_CASE("idx: a gzip file of two members") {
    const testing::TempFolder folder;
    const Files files;
    Write(folder.path(), files, true);
    const auto middle = files.train_images.begin() + 5000;
    Bytes packed = Gzip(Bytes(files.train_images.begin(), middle));
    const Bytes rest = Gzip(Bytes(middle, files.train_images.end()));
    packed.insert(packed.end(), rest.begin(), rest.end());
    WriteFile(folder / "train-images-idx3-ubyte.gz", packed);
    CHECK(Inspect("mnist", folder.path()).train == 12);
    CHECK(Plain(Read("mnist", folder.path()).train.pixels) == Pixels(12));
  }

  TEST_CASE("idx: damaged content, the same words from Read and Inspect") {
    struct Row {
      const char* file;
      Bytes bytes;
      std::string message;
    };
    const Files good;
    const auto cut = [](Bytes bytes, std::size_t size) {
      bytes.resize(size);
      return bytes;
    };
    const std::string images = "DIR/train-images-idx3-ubyte: byte ";
    const std::string labels = "DIR/train-labels-idx1-ubyte: byte ";
    const std::string images_size = "; expected 9424 bytes (header 16, then 12 x 784)";
    const std::string labels_size = "; expected 20 bytes (header 8, then 12 x 1)";
    const std::vector<Row> rows = {
        {"train-images-idx3-ubyte",
         {},
         images + "0: the data ends here; expected an IDX header of 16 bytes"},
        {"train-images-idx3-ubyte", cut(good.train_images, 10),
         images + "10: the data ends here; expected an IDX header of 16 bytes"},
        {"train-images-idx3-ubyte", good.train_labels,
         images + "0: magic number 0x00000801; expected 0x00000803 (IDX, bytes, three dimensions)"},
        {"train-images-idx3-ubyte", Idx(kImages, {0, 28, 28}, {}),
         images + "4: a header that says 0 images; expected 1 to 1000000"},
        {"train-images-idx3-ubyte", Idx(kImages, {0xffffffff, 28, 28}, {}),
         images + "4: a header that says 4294967295 images; expected 1 to 1000000"},
        {"train-images-idx3-ubyte", Idx(kImages, {1000000, 28, 28}, {}),
         images +
             "16: the data ends here; expected 784000016 bytes (header 16, then 1000000 x 784)"},
        {"train-images-idx3-ubyte", Idx(kImages, {12, 32, 28}, {}),
         images + "8: a header that says 32 rows an image; expected 28"},
        {"train-images-idx3-ubyte", Idx(kImages, {12, 28, 27}, {}),
         images + "12: a header that says 27 columns an image; expected 28"},
        {"train-images-idx3-ubyte", cut(good.train_images, 9423),
         images + "9423: the data ends here" + images_size},
        {"train-images-idx3-ubyte", cut(good.train_images, 9430),
         images + "9424: more data than expected (it ends at byte 9430)" + images_size},
        {"train-labels-idx1-ubyte", good.train_images,
         labels + "0: magic number 0x00000803; expected 0x00000801 (IDX, bytes, one dimension)"},
        {"train-labels-idx1-ubyte", Idx(kLabels, {11}, Labels(11)),
         labels + "4: 11 labels; expected 12, as many as images in DIR/train-images-idx3-ubyte"},
        {"train-labels-idx1-ubyte", cut(good.train_labels, 19),
         labels + "19: the data ends here" + labels_size},
        {"train-labels-idx1-ubyte", cut(good.train_labels, 21),
         labels + "20: more data than expected (it ends at byte 21)" + labels_size},
    };
    for (const Row& row : rows) {
      const testing::TempFolder folder;
      Write(folder.path(), {}, false);
      WriteFile(folder / row.file, row.bytes);
      CHECK(MessageOf(folder.path(), [&] { Read("mnist", folder.path()); }) ==
            row.message + kAdvice);
      CHECK(MessageOf(folder.path(), [&] { Inspect("mnist", folder.path()); }) ==
            row.message + kAdvice);
    }
  }

  TEST_CASE("idx: a label out of range") {
    Files files;
    files.train_labels[8 + 5] = 10;
    for (const bool packed : {false, true}) {
      const testing::TempFolder folder;
      Write(folder.path(), files, packed);
      CHECK(MessageOf(folder.path(), [&] { Read("mnist", folder.path()); }) ==
            std::string("DIR/train-labels-idx1-ubyte") +
                (packed ? ".gz: byte 13 of the unpacked data: " : ": byte 13: ") +
                "label 10; expected 0 to 9" + kAdvice);
    }
  }

  TEST_CASE("idx: damaged gzip") {
    struct Row {
      Bytes bytes;
      std::string begin;
    };
    const std::string file = "DIR/train-images-idx3-ubyte.gz: byte ";
    const std::string unpacked = " of the unpacked data: ";
    const Bytes good = Gzip(Files().train_images);
    Bytes cut = good, no_trailer = good, flipped = good, wrong_sum = good, lying = good;
    cut.resize(good.size() / 2);
    no_trailer.resize(good.size() - 8);
    flipped[good.size() / 2] ^= 0xff;
    wrong_sum[good.size() - 8] ^= 1;
    lying[good.size() - 4] ^= 1;
    const Bytes other = Gzip(Idx(kImages, {12, 28, 28}, Pixels(13)));
    const Bytes bomb = Gzip(Idx(kImages, {1000000, 28, 28}, {}));
    const auto at = [&file](std::size_t byte) { return file + std::to_string(byte); };
    const std::vector<Row> rows = {
        {{}, file + "0" + unpacked + "the data ends here; expected an IDX header"},
        {cut, at(cut.size()) + ": the gzip data is cut off; expected a whole gzip file"},
        {no_trailer, at(no_trailer.size()) + ": the gzip data is cut off; expected a whole"},
        {flipped, file},
        {wrong_sum, at(good.size() - 4) + ": the gzip data is damaged: incorrect data check"},
        {lying, at(good.size()) + ": the gzip data is damaged: incorrect length check"},
        {other, at(9424) + unpacked + "more data than expected (it ends at byte 10208)"},
        {bomb, at(16) + unpacked + "the data ends here; expected 784000016 bytes"},
    };
    for (const Row& row : rows) {
      const testing::TempFolder folder;
      Write(folder.path(), {}, true);
      WriteFile(folder / "train-images-idx3-ubyte.gz", row.bytes);
      const std::string message = MessageOf(folder.path(), [&] { Read("mnist", folder.path()); });
      CHECK(message.substr(0, row.begin.size()) == row.begin);
      CHECK(message.ends_with(kAdvice));
    }
  }
}

}  // namespace ada::data
