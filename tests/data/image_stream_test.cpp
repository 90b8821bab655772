// Images that are decoded and changed on the way: the same bytes whatever the threads do, the steps
// of the change as they are said to be, and broken files.
#include <doctest/doctest.h>

#include <cmath>

#include "data/batch_maker.h"
#include "data/image_writer.h"
#include "data/images/resize.h"
#include "data/loader.h"
#include "data/readers.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

constexpr int kPictures = 20;

// Two classes of ten pictures each, all of different sizes and contents.
void PutVaried(const testing::TempFolder& folder) {
  for (int i = 0; i < kPictures; ++i)
    for (const char* split : {"train", "val"}) {
      Picture picture{20 + i, 40 - i, 3, {}};
      for (int p = 0; p < picture.height * picture.width * 3; ++p)
        picture.pixels.push_back(static_cast<std::uint8_t>(p * p / 50 + i * 31));
      const std::string path = folder / (std::string(split) + (i < 10 ? "/a/" : "/b/") +
                                         std::to_string(100 + i) + ".png");
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      WritePng(path, picture);
    }
}

LoaderSpec Everything(int workers) {
  LoaderSpec spec;
  spec.batch_size = 9;
  spec.shuffle = spec.horizontal_flip = true;
  spec.mean = {0.5, 0.4, 0.3};
  spec.std = {0.2, 0.3, 0.4};
  spec.workers = workers;
  spec.prefetch = 1;
  spec.changes.random_resized_crop = RandomResizedCrop{{12, 14}, {}};
  spec.changes.color_jitter = ColorJitterSpec{{0.6, 1.4}, {0.6, 1.4}, {0.6, 1.4}, {-0.1, 0.1}};
  spec.changes.random_erasing = RandomErasingSpec{};
  return spec;
}

bool SameBatch(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.labels == b.labels && a.images == b.images && a.numbers == b.numbers;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("image stream: no byte depends on workers, or on where one begins") {
    const testing::TempFolder folder;
    PutVaried(folder);
    const Splits splits = OpenFolder(folder.path());
    BatchMaker maker(splits.train, Everything(0));
    REQUIRE(maker.parts() == 2);
    std::vector<Batch> truth(9);
    for (std::size_t i = 0; i < truth.size(); ++i)
      maker.Make(static_cast<std::int64_t>(i), &truth[i]);
    CHECK_FALSE(SameBatch(truth[0], truth[3]));  // another epoch
    for (const int workers : {0, 1, 2, 5}) {
      Loader loader(splits.train, Everything(workers));
      for (const Batch& batch : truth) REQUIRE(SameBatch(batch, loader.Next()));
      loader.Seek(1, 2);
      for (std::size_t i = 5; i < truth.size(); ++i) REQUIRE(SameBatch(truth[i], loader.Next()));
    }
  }

  TEST_CASE("image stream: in memory and in files the same images give the same bytes") {
    const testing::TempFolder folder;
    Dataset memory = {"numbered", 8, 8, 3, 2};
    for (int i = 0; i < 10; ++i) {
      Picture picture{8, 8, 3, {}};
      for (int p = 0; p < 192; ++p)
        picture.pixels.push_back(static_cast<std::uint8_t>(p * 3 + i * 40));
      memory.pixels.insert(memory.pixels.end(), picture.pixels.begin(), picture.pixels.end());
      memory.labels.push_back(static_cast<Label>(i / 5));
      for (const char* split : {"train", "val"}) {
        const std::string path =
            folder / (std::string(split) + (i < 5 ? "/a/" : "/b/") + std::to_string(i) + ".png");
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        WritePng(path, picture);
      }
    }
    Dataset files = OpenFolder(folder.path()).train;
    files.height = files.width = 8;
    LoaderSpec moved, cropped, resized = Everything(0);
    moved.shuffle = moved.random_crop = moved.horizontal_flip = true;
    moved.pad = 2;
    moved.batch_size = 4;
    cropped = moved;
    cropped.changes.center_crop = {5, 6};
    LoaderSpec middle = cropped;
    middle.random_crop = false;
    LoaderSpec colored = cropped;
    colored.changes.color_jitter = Everything(0).changes.color_jitter;
    colored.changes.resize.shorter = 9;
    for (const LoaderSpec& spec : {moved, cropped, middle, colored, resized}) {
      BatchMaker a(memory, spec), b(files, spec);
      for (std::int64_t i = 0; i < 6; ++i) {
        Batch first, second;
        a.Make(i, &first), b.Make(i, &second);
        REQUIRE(SameBatch(first, second));
      }
    }
  }

  TEST_CASE("image stream: resize and centre crop are those of pictures/resize.h, then the table") {
    const testing::TempFolder folder;
    PutVaried(folder);
    const Splits splits = OpenFolder(folder.path());
    LoaderSpec spec;
    spec.batch_size = kPictures;
    spec.changes.resize.shorter = 16;
    spec.changes.center_crop = {15, 13};
    spec.mean = {0.5, 0.4, 0.3};
    spec.std = {0.2, 0.3, 0.4};
    Batch batch;
    BatchMaker(splits.test, spec).Make(0, &batch);
    const ImageShape shape{15, 13, 3};
    for (int i = 0; i < kPictures; ++i) {
      const Picture whole = ReadPicture(splits.test.store->NameOf(i));
      const Picture shown = ResizeAndCrop(whole, 16, {15, 13}, "test");
      std::vector<float> expected(static_cast<std::size_t>(shape.numel()));
      WriteImage(shown.pixels.data(), shape, {}, NormalizeTable(3, spec.mean, spec.std),
                 expected.data());
      CHECK(std::equal(expected.begin(), expected.end(), batch.images.begin() + i * shape.numel()));
      CHECK(NetworkInput(whole, spec, shape, "test") == expected);
    }
  }

  TEST_CASE("image stream: a broken file ends it, is replaced, or is left out") {
    const testing::TempFolder folder;
    PutVaried(folder);
    for (const char* name : {"train/a/103.png", "train/b/119.png"})
      WriteFile(folder / name, {1, 2});
    const Splits splits = OpenFolder(folder.path());
    LoaderSpec spec = Everything(0);
    spec.shuffle = false;
    BatchMaker good(splits.test, spec);  // the same pictures, all whole
    Batch whole[3];
    for (int i = 0; i < 3; ++i) good.Make(i, &whole[i]);
    const std::int64_t size = good.shape().numel();
    const auto row = [&](const Batch& batch, int i) {
      return std::vector<float>(batch.images.begin() + i * size,
                                batch.images.begin() + (i + 1) * size);
    };
    for (const int workers : {0, 2}) {
      spec.workers = workers;
      spec.on_broken = OnBroken::kFail;
      Loader failing(splits.train, spec);
      CHECK(MessageOf(folder.path(), [&] { failing.Next(); }).starts_with("DIR/train/a/103.png: "));
      spec.on_broken = OnBroken::kReplace;
      Loader replacing(splits.train, spec);
      for (int epoch = 0; epoch < 2; ++epoch) {
        const Batch first = replacing.Next(), second = replacing.Next(), third = replacing.Next();
        CHECK(first.rows == 9);
        REQUIRE(first.broken.size() == 1);
        CHECK(first.broken[0].image == 3);
        CHECK(first.broken[0].message.find("train/a/103.png") != std::string::npos);
        CHECK(first.numbers[3] == 4);
        CHECK(row(first, 3) == row(first, 4));
        CHECK(second.broken.empty());
        REQUIRE(third.rows == 2);
        CHECK(third.numbers[1] == 0);  // the one after the last is the first
        CHECK(third.labels[1] == 0);
        if (epoch == 0) CHECK(row(first, 2) == row(whole[0], 2));
      }
      spec.on_broken = OnBroken::kLeaveOut;
      Loader leaving(splits.train, spec);
      const Batch first = leaving.Next();
      CHECK(first.rows == 8);
      CHECK(first.images.size() == static_cast<std::size_t>(8 * size));
      CHECK(first.numbers == std::vector<std::uint32_t>{0, 1, 2, 4, 5, 6, 7, 8});
      for (int i = 0; i < 8; ++i) CHECK(row(first, i) == row(whole[0], i < 3 ? i : i + 1));
    }
  }

  TEST_CASE("image stream: where nothing can be read there is no end without a word") {
    const testing::TempFolder folder;
    for (const char* name : {"train/a/1.png", "train/a/2.png", "val/a/1.png"})
      WriteFile(folder / name, {1});
    const Splits splits = OpenFolder(folder.path());
    LoaderSpec spec = Everything(2);
    spec.batch_size = 2;
    spec.on_broken = OnBroken::kReplace;
    Loader loader(splits.train, spec);
    CHECK(MessageOf(folder.path(), [&] {
            loader.Next();
          }).starts_with("none of the 2 images can be read; the last: DIR/train/a/"));
    spec.on_broken = OnBroken::kLeaveOut;
    Loader leaving(splits.train, spec);
    CHECK(leaving.Next().rows == 0);
  }

  TEST_CASE(
      "image stream: an image that is too small to be cropped, or of another size, is named") {
    const testing::TempFolder folder;
    PutVaried(folder);
    Dataset train = OpenFolder(folder.path()).train;
    LoaderSpec spec;
    spec.workers = 0;
    spec.random_crop = true;
    spec.changes.center_crop = {30, 30};
    const auto message = [&] {
      return MessageOf(folder.path(), [&] { Loader(train, spec).Next(); });
    };
    CHECK(message().starts_with(
        "DIR/train/a/100.png: 40 x 20 pixels, too small to cut 30 x 30 pixels from a "
        "random place; set data.resize"));
    spec.random_crop = false;
    CHECK(message() == "");  // black beside it, as torchvision's CenterCrop
    spec.changes.center_crop = {};
    train.height = 20, train.width = 40;
    CHECK(message().starts_with(
        "DIR/train/a/101.png: 39 x 21 pixels; expected 40 x 20 pixels, as the first "
        "image; where sizes differ set data.resize and data.center_crop"));
  }
}

}  // namespace ada::data
