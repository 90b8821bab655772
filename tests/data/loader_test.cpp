// The loader: the same bytes whatever the threads do, every image once, resuming, errors of
// workers.
#include "data/loader.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "data/augment.h"
#include "data/batch.h"
#include "tiny_files.h"

namespace ada::data {
namespace {

// Image i has label i and pixels that tell it apart.
Dataset Numbered(int images, int side = 4, int channels = 3) {
  Dataset dataset = {"numbered", side, side, channels, 256};
  for (int i = 0; i < images; ++i) {
    dataset.labels.push_back(static_cast<Label>(i));
    for (int p = 0; p < side * side * channels; ++p) {
      dataset.pixels.push_back(static_cast<std::uint8_t>(i * 31 + p * 7));
    }
  }
  return dataset;
}

LoaderSpec Augmented(int workers, int prefetch = 3) {
  LoaderSpec spec;
  spec.batch_size = 7;
  spec.shuffle = true;
  spec.pad = 2;
  spec.random_crop = spec.horizontal_flip = true;
  spec.mean = {0.5, 0.4, 0.3};
  spec.std = {0.2, 0.3, 0.4};
  spec.seed = 42;
  spec.workers = workers;
  spec.prefetch = prefetch;
  return spec;
}

bool Same(const Batch& a, const Batch& b) {
  return a.rows == b.rows && a.labels == b.labels && a.images == b.images;
}

std::vector<Batch> Take(Loader& loader, int count) {
  std::vector<Batch> batches(static_cast<std::size_t>(count));
  for (Batch& batch : batches) batch = loader.Next();
  return batches;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("loader: no byte depends on workers or prefetch") {
    const Dataset dataset = Numbered(50);
    Loader first(dataset, Augmented(0));
    const std::vector<Batch> truth = Take(first, 30);  // 8 batches an epoch
    for (const int workers : {1, 2, 3}) {
      for (const int prefetch : {0, 1, 4, 25}) {
        Loader loader(dataset, Augmented(workers, prefetch));
        for (const Batch& batch : truth) REQUIRE(Same(batch, loader.Next()));
      }
    }
  }

  TEST_CASE("loader: batches are what order, placement and table say") {
    const Dataset dataset = Numbered(20);
    const LoaderSpec spec = Augmented(2);
    const std::vector<float> table = NormalizeTable(3, spec.mean, spec.std);
    Loader loader(dataset, spec);
    for (int epoch = 0; epoch < 3; ++epoch) {
      const Order order = ShuffledOrder(42, epoch, 20);
      std::size_t position = 0;
      for (std::int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
        const Batch& batch = loader.Next();
        REQUIRE(batch.images.size() == static_cast<std::size_t>(batch.rows) * 48);
        for (std::size_t row = 0; row < batch.labels.size(); ++row) {
          const std::uint32_t image = order[position++];
          CHECK(batch.labels[row] == static_cast<int>(image));
          std::vector<float> expected(48);
          WriteImage(dataset.pixels.data() + image * 48, {4, 4, 3},
                     PlaceImage({2, true, true}, 42, epoch, image), table, expected.data());
          CHECK(std::equal(expected.begin(), expected.end(), batch.images.begin() + row * 48));
        }
      }
      CHECK(position == 20);
    }
  }

  TEST_CASE("loader: tails and drop_last") {
    struct Row {
      int images, batch;
      bool drop;
      std::vector<int> rows;
    };
    for (const Row& row :
         {Row{10, 4, false, {4, 4, 2}}, Row{10, 4, true, {4, 4}}, Row{8, 4, false, {4, 4}},
          Row{8, 4, true, {4, 4}}, Row{3, 4, false, {3}}, Row{1, 1, true, {1}}}) {
      for (const bool shuffle : {false, true}) {
        const Dataset dataset = Numbered(row.images);
        LoaderSpec spec;
        spec.batch_size = row.batch;
        spec.drop_last = row.drop;
        spec.shuffle = shuffle;
        Loader loader(dataset, spec);
        REQUIRE(loader.batches_per_epoch() == static_cast<std::int64_t>(row.rows.size()));
        for (int epoch = 0; epoch < 3; ++epoch) {
          std::vector<int> seen;
          for (const int rows : row.rows) {
            const Batch& batch = loader.Next();
            CHECK(batch.rows == rows);
            CHECK(batch.labels.size() == static_cast<std::size_t>(rows));
            CHECK(batch.images.size() == static_cast<std::size_t>(rows) * 48);
            seen.insert(seen.end(), batch.labels.begin(), batch.labels.end());
          }
          if (!shuffle) CHECK(std::is_sorted(seen.begin(), seen.end()));
          std::sort(seen.begin(), seen.end());
          CHECK(std::adjacent_find(seen.begin(), seen.end()) == seen.end());  // each image once
        }
      }
    }
  }

  TEST_CASE("loader: orders are permutations, different in each epoch and seed") {
    std::vector<Order> orders;
    for (const std::uint64_t seed : {1u, 2u}) {
      for (int epoch = 0; epoch < 4; ++epoch) orders.push_back(ShuffledOrder(seed, epoch, 1000));
    }
    Order identity(1000);
    std::iota(identity.begin(), identity.end(), 0u);
    for (std::size_t i = 0; i < orders.size(); ++i) {
      Order sorted = orders[i];
      CHECK(sorted != identity);
      std::sort(sorted.begin(), sorted.end());
      CHECK(sorted == identity);
      for (std::size_t j = 0; j < i; ++j) CHECK(orders[i] != orders[j]);
    }
    // Where 0 of 3 images goes: 2000 of 6000 each, the standard deviation is 37.
    std::vector<int> places(3);
    for (int epoch = 0; epoch < 6000; ++epoch) {
      const Order order = ShuffledOrder(9, epoch, 3);
      ++places[static_cast<std::size_t>(std::find(order.begin(), order.end(), 0u) - order.begin())];
    }
    for (const int count : places) CHECK(std::abs(count - 2000) < 200);
  }

  TEST_CASE("loader: Seek gives what sequential reading gives") {
    const Dataset dataset = Numbered(50);
    Loader sequential(dataset, Augmented(0));
    const std::vector<Batch> truth = Take(sequential, 40);
    for (const int workers : {0, 1, 3}) {
      Loader loader(dataset, Augmented(workers));
      for (const auto& [epoch, index] :
           {std::pair{0u, 0u}, {2u, 3u}, {0u, 5u}, {1u, 8u}, {3u, 7u}, {0u, 0u}}) {
        loader.Seek(epoch, index);
        const std::size_t first = epoch * std::size_t{8} + index;
        for (std::size_t i = first; i < first + 4; ++i) REQUIRE(Same(truth[i], loader.Next()));
      }
    }
  }

  TEST_CASE("loader: a batch stays valid until the next call") {
    const Dataset dataset = Numbered(50);
    for (int round = 0; round < 20; ++round) {
      Loader loader(dataset, Augmented(3, 1));
      const Batch& batch = loader.Next();
      const Batch copy = batch;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      REQUIRE(Same(batch, copy));
    }
  }

  TEST_CASE("loader: it can go at any moment, started or not") {
    const Dataset dataset = Numbered(200);
    for (int round = 0; round < 30; ++round) {
      Loader idle(dataset, Augmented(3));
      Loader sought(dataset, Augmented(3));
      sought.Seek(round, 1);
      Loader used(dataset, Augmented(3));
      CHECK(Take(used, round % 5).size() == static_cast<std::size_t>(round % 5));
    }
  }

  TEST_CASE("loader: an error of a worker comes out of Next, again and again") {
    for (const int workers : {0, 2}) {
      Dataset dataset = Numbered(50);
      Loader loader(dataset, Augmented(workers));
      dataset.pixels.resize(100);  // what must not happen: the data set changes under the loader
      for (int i = 0; i < 3; ++i) CHECK_THROWS_AS(loader.Next(), InternalError);
      loader.Seek(1, 1);
      CHECK_THROWS_AS(loader.Next(), InternalError);
    }
  }

  TEST_CASE("loader: what does not go together") {
    const Dataset dataset = Numbered(5);
    const auto message = [](const Dataset& data, const LoaderSpec& spec) {
      return MessageOf<ConfigError>("no folder", [&] { Loader loader(data, spec); });
    };
    LoaderSpec drop;
    drop.batch_size = 6;
    drop.drop_last = true;
    CHECK(message(dataset, drop) ==
          "data.drop_last: 5 images make no whole batch of 6; lower data.batch_size or set "
          "data.drop_last: false");
    CHECK(message(Numbered(0), {}) ==
          "data set numbered: no images; expected at least one: see data.limit and "
          "data.validation");
    LoaderSpec normalize;
    normalize.mean = normalize.std = {0.5};
    CHECK(message(dataset, normalize) ==
          "data.normalize: 1 values in mean, 1 in std; expected 3 in each, one a channel of "
          "numbered");
    normalize.mean = {0, 0, 0};
    normalize.std = {1, 0, 1};
    CHECK(message(dataset, normalize) ==
          "data.normalize: a std of 0.000000; expected a number above 0");
  }
}

}  // namespace ada::data
