// Data sets in backend memory: batches are the loader's, bit for bit, in any order, from any place,
// whole and in micro-batches; a set that would crowd out the step is declined.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/context.h"
#include "data/augment.h"
#include "data/loader.h"
#include "error.h"
#include "on_both.h"
#include "step/batches/resident_batches.h"

#ifndef ADA_CUDA_DEVICE
#include "cuda/host/host_stream.h"
#endif

namespace ada::backend::test {
namespace {

using step::ResidentBatches;

// Image i has label i and pixels that tell it apart.
data::Dataset Numbered(int images, int height, int width, int channels) {
  data::Dataset dataset = {"numbered", height, width, channels, 256};
  for (int i = 0; i < images; ++i) {
    dataset.labels.push_back(static_cast<data::Label>(i));
    for (int p = 0; p < height * width * channels; ++p)
      dataset.pixels.push_back(static_cast<std::uint8_t>(i * 31 + p * 7 + p / 251));
  }
  return dataset;
}

data::LoaderSpec Augmented(int channels) {
  data::LoaderSpec spec;
  spec.batch_size = 7;
  spec.shuffle = true;
  spec.pad = 3;
  spec.random_crop = spec.horizontal_flip = true;
  for (int c = 0; c < channels; ++c) {
    spec.mean.push_back(0.5 - 0.1 * c);
    spec.std.push_back(0.2 + 0.05 * c);
  }
  spec.seed = 42;
  return spec;
}

// What Next and Fill leave in backend memory; `part`: rows of a micro-batch.
data::Batch NextBatch(ResidentBatches& resident, Backend& backend, std::int64_t values, int part) {
  data::Batch batch;
  batch.rows = resident.Next();
  for (int from = 0; from < batch.rows; from += part) {
    const int rows = std::min(part, batch.rows - from);
    const auto numbers = static_cast<std::size_t>(rows * values);
    std::byte* images = backend.Allocate(numbers * sizeof(float));
    std::byte* labels = backend.Allocate(static_cast<std::size_t>(rows) * sizeof(std::int32_t));
    resident.Fill(from, rows, reinterpret_cast<float*>(images),
                  reinterpret_cast<std::int32_t*>(labels));
    std::vector<float> pixels(numbers);
    std::vector<std::int32_t> classes(static_cast<std::size_t>(rows));
    backend.Download(pixels.data(), images, numbers * sizeof(float));
    backend.Download(classes.data(), labels, classes.size() * sizeof(std::int32_t));
    backend.Synchronize();
    batch.images.insert(batch.images.end(), pixels.begin(), pixels.end());
    batch.labels.insert(batch.labels.end(), classes.begin(), classes.end());
  }
  return batch;
}

void CheckSame(const data::Batch& seen, const data::Batch& expected) {
  REQUIRE(seen.rows == expected.rows);
  CHECK(seen.labels == expected.labels);
  REQUIRE(seen.images.size() == expected.images.size());
  CHECK(std::memcmp(seen.images.data(), expected.images.data(),
                    seen.images.size() * sizeof(float)) == 0);
}

// `batches` batches from the first on.
void CheckLikeLoader(Backend& backend, const data::Dataset& dataset, const data::LoaderSpec& spec,
                     int batches, int part = 1000) {
  const auto resident = ResidentBatches::Make(backend, dataset, spec);
  REQUIRE(resident);
  data::Loader loader(dataset, spec);
  REQUIRE(resident->batches_per_epoch() == loader.batches_per_epoch());
  const std::int64_t values = std::int64_t{dataset.height} * dataset.width * dataset.channels;
  for (int i = 0; i < batches; ++i)
    CheckSame(NextBatch(*resident, backend, values, part), loader.Next());
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("batches from backend memory are the loader's") {
    const auto backend = MakeBackendUnderTest();
    for (const int channels : {1, 2, 3}) {
      CAPTURE(channels);
      const data::Dataset dataset = Numbered(31, 9, 12, channels);
      data::LoaderSpec spec = Augmented(channels);
      CheckLikeLoader(*backend, dataset, spec, 11);  // 5 an epoch, the last of 3 images
      spec.drop_last = true;
      CheckLikeLoader(*backend, dataset, spec, 9);
      spec.shuffle = false;
      CheckLikeLoader(*backend, dataset, spec, 9);
      spec.random_crop = false;
      CheckLikeLoader(*backend, dataset, spec, 5);
      spec.random_crop = true, spec.horizontal_flip = false;
      spec.mean = spec.std = {};
      CheckLikeLoader(*backend, dataset, spec, 5);
      spec.random_crop = false;
      CheckLikeLoader(*backend, dataset, spec, 5);
    }
  }

  TEST_CASE("images of several blocks, and crops that leave nothing of an image") {
    const auto backend = MakeBackendUnderTest();
    CheckLikeLoader(*backend, Numbered(8, 70, 131, 3), Augmented(3), 2);
    data::LoaderSpec spec = Augmented(1);
    spec.pad = 40;
    CheckLikeLoader(*backend, Numbered(20, 5, 4, 1), spec, 3);
  }

  TEST_CASE("micro-batches are parts of the batch") {
    const auto backend = MakeBackendUnderTest();
    const data::Dataset dataset = Numbered(31, 6, 6, 3);
    for (const int part : {1, 3, 4}) CheckLikeLoader(*backend, dataset, Augmented(3), 6, part);
  }

  TEST_CASE("a run goes on anywhere, forwards and backwards") {
    const auto backend = MakeBackendUnderTest();
    const data::Dataset dataset = Numbered(31, 6, 6, 3);
    const auto resident = ResidentBatches::Make(*backend, dataset, Augmented(3));
    REQUIRE(resident);
    data::Loader loader(dataset, Augmented(3));
    const std::pair<std::int64_t, std::int64_t> places[] = {{3, 2}, {0, 4}, {0, 5}, {7, 0}, {7, 0}};
    for (const auto& [epoch, index] : places) {
      resident->Seek(epoch, index);
      loader.Seek(epoch, index);
      for (int i = 0; i < 2; ++i)
        CheckSame(NextBatch(*resident, *backend, 6 * 6 * 3, 1000), loader.Next());
    }
  }

  TEST_CASE("an order counts for what is asked for afterwards alone") {
    const auto backend = MakeBackendUnderTest();
    const data::Dataset dataset = Numbered(4, 1, 1, 1);
    const std::vector<float> table = data::NormalizeTable(1, {}, {});
    ImageSourceSpec spec;
    spec.pixels = dataset.pixels.data(), spec.labels = dataset.labels.data();
    spec.images = 4;
    spec.image = {1, 1, 1, 1};
    spec.table = table.data();
    const auto source = backend->MakeImageSource(spec);
    REQUIRE(source);
    auto* images = reinterpret_cast<float*>(backend->Allocate(8 * sizeof(float)));
    auto* labels = reinterpret_cast<std::int32_t*>(backend->Allocate(8 * sizeof(std::int32_t)));
    std::vector<std::uint32_t> order = {3, 1, 0, 2};
    source->Fill(0, 0, 4, images, labels);
    source->SetOrder(order.data());
    order.assign(4, 0);
    source->Fill(0, 0, 4, images + 4, labels + 4);
    std::vector<std::int32_t> seen(8);
    backend->Download(seen.data(), reinterpret_cast<std::byte*>(labels), 8 * sizeof(std::int32_t));
    backend->Synchronize();
    CHECK(seen == std::vector<std::int32_t>{0, 1, 2, 3, 3, 1, 0, 2});
    CHECK_THROWS_AS(source->Fill(0, 2, 3, images, labels), InternalError);
  }

#ifndef ADA_CUDA_DEVICE
  TEST_CASE("no thread depends on another's turn") {
    auto stream = std::make_unique<cuda::HostStream>();
    stream->set_reverse(true);
    const auto backend = cuda::MakeBackendOn(std::move(stream), {"test", "none"}, {});
    CheckLikeLoader(*backend, Numbered(12, 70, 71, 2), Augmented(2), 3);
  }

  TEST_CASE("the CPU and a backend with too little memory decline") {
    const data::Dataset dataset = Numbered(31, 6, 6, 3);
    CHECK_FALSE(ResidentBatches::Make(*cpu::MakeCpuBackend(1), dataset, Augmented(3)));
    ImageSourceSpec spec;  // declined before it is looked at
    spec.images = std::int64_t{1} << 60;
    spec.image = {1, 1, 2, 2};
    CHECK(MakeBackendUnderTest()->ImageSourceBytes(spec) == 0);
    CHECK_FALSE(MakeBackendUnderTest()->MakeImageSource(spec));
  }

  TEST_CASE("what a source will take is known before it is made") {
    const data::Dataset dataset = Numbered(31, 6, 6, 3);
    ImageSourceSpec spec;
    spec.images = 31;
    spec.image = {1, 6, 6, 3};
    const auto backend = MakeBackendUnderTest();
    const std::size_t before = backend->allocated_bytes(), told = backend->ImageSourceBytes(spec);
    CHECK(told >= 31 * 6 * 6 * 3);
    CHECK(ResidentBatches::Make(*backend, dataset, Augmented(3)));
    const std::size_t taken = backend->allocated_bytes() - before;
    CHECK(taken >= told);
    CHECK(taken < told + 4096);  // each block is aligned
    CHECK(cpu::MakeCpuBackend(1)->ImageSourceBytes(spec) == 0);
  }

  TEST_CASE("specs that do not go with the data set are refused as the loader refuses them") {
    const auto backend = MakeBackendUnderTest();
    data::LoaderSpec spec = Augmented(3);
    spec.mean.pop_back();
    CHECK_THROWS_AS(ResidentBatches::Make(*backend, Numbered(9, 2, 2, 3), spec), ConfigError);
  }
#endif
}

}  // namespace ada::backend::test
