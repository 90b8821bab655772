// Batches of bytes: what normalizing them gives are the batches in fp32, to the last bit; and the
// batch that comes next, while another is held.
#include <doctest/doctest.h>

#include <thread>

#include "data/augment.h"
#include "data/batch_maker.h"
#include "data/loader.h"
#include "data/readers.h"
#include "error.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

// Two classes of six pictures of different sizes; with `broken`, two of the files are no pictures.
void PutSome(const testing::TempFolder& folder, bool broken) {
  for (int i = 0; i < 12; ++i)
    for (const char* split : {"train", "val"}) {
      Picture picture{20 + i, 30 - i, 3, {}};
      for (int p = 0; p < picture.height * picture.width * 3; ++p)
        picture.pixels.push_back(static_cast<std::uint8_t>(p * p / 40 + i * 29));
      const std::string path = folder / (std::string(split) + (i < 6 ? "/a/" : "/b/") +
                                         std::to_string(100 + i) + ".png");
      std::filesystem::create_directories(std::filesystem::path(path).parent_path());
      WritePng(path, picture);
    }
  if (!broken) return;
  for (const char* name : {"train/a/103.png", "train/b/111.png"}) WriteFile(folder / name, {1, 2});
}

LoaderSpec Moved() {
  LoaderSpec spec;
  spec.batch_size = 5;
  spec.shuffle = spec.random_crop = spec.horizontal_flip = true;
  spec.pad = 2;
  spec.mean = {0.5, 0.4, 0.3};
  spec.std = {0.2, 0.3, 0.4};
  spec.prefetch = 1;
  return spec;
}

void CheckNormalized(const Dataset& dataset, LoaderSpec spec, int batches) {
  REQUIRE(ComeAsBytes(dataset, spec));
  const std::vector<float> table = NormalizeTable(3, spec.mean, spec.std);
  BatchMaker in_fp32(dataset, spec);
  spec.as_bytes = true;
  BatchMaker as_bytes(dataset, spec);
  for (std::int64_t i = 0; i < batches; ++i) {
    Batch floats, bytes;
    in_fp32.Make(i, &floats), as_bytes.Make(i, &bytes);
    CHECK(bytes.rows == floats.rows);
    CHECK(bytes.labels == floats.labels);
    CHECK(bytes.numbers == floats.numbers);
    CHECK(bytes.images.empty());
    CHECK(floats.bytes.empty());
    REQUIRE(bytes.bytes.size() == floats.images.size());
    std::vector<float> normalized;
    for (std::size_t k = 0; k < bytes.bytes.size(); ++k)
      normalized.push_back(table[k % 3 * 256 + bytes.bytes[k]]);
    CHECK(normalized == floats.images);
  }
}

Dataset Numbered(int images) {
  Dataset dataset = {"numbered", 4, 5, 3, 256};
  for (int i = 0; i < images; ++i) {
    dataset.labels.push_back(static_cast<Label>(i));
    for (int p = 0; p < 60; ++p)
      dataset.pixels.push_back(static_cast<std::uint8_t>(i * 31 + p * 7));
  }
  return dataset;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("byte batches: normalised they are the batches in fp32") {
    const testing::TempFolder folder;
    PutSome(folder, /*broken=*/false);
    const Splits splits = OpenFolder(folder.path());
    LoaderSpec spec = Moved();
    CheckNormalized(Numbered(23), spec, 10);  // the last of an epoch has three rows
    spec.mean = spec.std = {};
    CheckNormalized(Numbered(23), spec, 5);
    spec = Moved();
    spec.random_crop = false, spec.pad = 0;
    spec.changes.random_resized_crop = RandomResizedCrop{{12, 14}, {}};
    spec.changes.color_jitter = ColorJitterSpec{{0.6, 1.4}, {0.6, 1.4}, {0.6, 1.4}, {-0.1, 0.1}};
    CheckNormalized(splits.train, spec, 6);
    LoaderSpec cropped = Moved();
    cropped.changes.resize.shorter = 16;
    cropped.changes.center_crop = {15, 17};
    CheckNormalized(splits.test, cropped, 3);
  }

  TEST_CASE("byte batches: rows of broken files are left out, or replaced") {
    const testing::TempFolder folder;
    PutSome(folder, /*broken=*/true);
    const Splits splits = OpenFolder(folder.path());
    LoaderSpec spec = Moved();
    spec.shuffle = false;
    spec.changes.resize.to = {9, 10};
    for (const OnBroken what : {OnBroken::kLeaveOut, OnBroken::kReplace}) {
      spec.on_broken = what;
      CheckNormalized(splits.train, spec, 6);
    }
  }

  TEST_CASE("rows that are left out and rows that are mixed do not go together") {
    LoaderSpec spec = Moved();
    spec.mixing.mixup_alpha = 1;
    spec.on_broken = OnBroken::kLeaveOut;
    Batch batch;
    CHECK_THROWS_AS(BatchMaker(Numbered(9), spec).Make(0, &batch), InternalError);
    spec.on_broken = OnBroken::kReplace;
    CHECK_NOTHROW(BatchMaker(Numbered(9), spec).Make(0, &batch));
  }

  TEST_CASE("byte batches: what is done to normalised values does not go with them") {
    LoaderSpec spec = Moved();
    spec.mixing.mixup_alpha = 1;
    CHECK_FALSE(ComeAsBytes(Numbered(9), spec));
    spec.as_bytes = true;
    CHECK_THROWS_AS(BatchMaker(Numbered(9), spec), InternalError);
    spec = Moved();
    spec.changes.random_erasing = RandomErasingSpec{};
    CHECK_FALSE(ComeAsBytes(Numbered(9), spec));
  }

  TEST_CASE("loader: the batch ahead is the next one, and leaves the present one alone") {
    const Dataset dataset = Numbered(23);
    LoaderSpec spec = Moved();
    spec.as_bytes = true;
    BatchMaker truth(dataset, spec);
    for (const int prefetch : {1, 3}) {
      spec.prefetch = prefetch;
      Loader loader(dataset, spec);
      CHECK(loader.Ahead() == nullptr);  // no thread has begun
      const auto check = [&](std::int64_t i) {
        const Batch& present = loader.Next();
        const Batch* ahead = nullptr;
        while ((ahead = loader.Ahead()) == nullptr) std::this_thread::yield();
        Batch here, next;
        truth.Make(i, &here), truth.Make(i + 1, &next);
        CHECK(ahead->bytes == next.bytes);
        CHECK(present.bytes == here.bytes);
        CHECK(&loader.Next() == ahead);
      };
      for (const std::int64_t i : {0, 2, 4, 6, 8}) check(i);
      loader.Seek(0, 2);
      check(2);
    }
    spec.prefetch = 0;  // one slot: nothing can be ahead of what the caller holds
    Loader lone(dataset, spec);
    lone.Next();
    CHECK(lone.Ahead() == nullptr);
    spec.prefetch = 3, spec.workers = 0;
    Loader own(dataset, spec);
    own.Next();
    CHECK(own.Ahead() == nullptr);
  }
}

}  // namespace ada::data
