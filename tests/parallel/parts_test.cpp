// Parts of batches: together they are the batch, image by image, however it is mixed.
#include <doctest/doctest.h>

#include <map>
#include <vector>

#include "data/batch_maker.h"
#include "data/catalog.h"
#include "io/run_in_parallel.h"

namespace ada::data {
namespace {

struct Row {
  std::vector<float> image;
  std::int32_t label = 0, second = 0;
  float share = 1;
  friend bool operator==(const Row&, const Row&) = default;
};

// The rows of batch `sequence` in order.
std::vector<Row> RowsOf(const Dataset& set, const LoaderSpec& spec, std::int64_t sequence,
                        int* whole = nullptr) {
  BatchMaker maker(set, spec);
  Batch batch;
  maker.Make(sequence, &batch);
  CHECK(batch.terms == batch.rows);
  if (whole != nullptr) *whole = batch.whole_rows;
  const std::size_t size = batch.rows == 0 ? 0 : batch.images.size() / batch.rows;
  std::vector<Row> rows;
  for (std::size_t i = 0; i < static_cast<std::size_t>(batch.rows); ++i) {
    const auto begin = batch.images.begin() + static_cast<std::ptrdiff_t>(i * size);
    Row row{{begin, begin + static_cast<std::ptrdiff_t>(size)}, batch.labels[i]};
    if (!batch.shares.empty()) row.second = batch.second_labels[i], row.share = batch.shares[i];
    rows.push_back(row);
  }
  return rows;
}

TEST_SUITE("cpu") {
  TEST_CASE("shares are even, in order, and all there is") {
    for (const std::int64_t total : {0, 1, 5, 64, 100})
      for (const int parts : {1, 2, 3, 7, 64}) {
        std::int64_t next = 0, least = total, most = 0;
        for (int i = 0; i < parts; ++i) {
          const Share share = ShareOf(total, parts, i);
          CHECK(share.first == next);
          next += share.count;
          least = std::min(least, share.count), most = std::max(most, share.count);
        }
        CHECK(next == total);
        CHECK(most - least <= 1);
        CHECK(ShareOf(total, parts, 0).count == most);
      }
  }

  TEST_CASE("the parts of a batch are its rows, augmented and mixed as in the whole") {
    SyntheticSpec synthetic;
    synthetic.height = 6, synthetic.width = 5, synthetic.channels = 2, synthetic.train = 50;
    const Dataset set = MakeSynthetic(synthetic, 3).train;
    LoaderSpec spec;
    spec.batch_size = 16, spec.shuffle = true, spec.workers = 0, spec.seed = 9;
    spec.pad = 2, spec.random_crop = spec.horizontal_flip = true;
    int mixed = 0;
    for (const double alpha : {0.0, 0.8})
      for (const int micro : {0, 8, 5})
        for (const int parts : {1, 2, 3, 4})
          for (std::int64_t sequence = 0; sequence < 8; ++sequence) {
            CAPTURE(alpha);
            CAPTURE(micro);
            CAPTURE(parts);
            CAPTURE(sequence);
            spec.mixing = {alpha, 1, alpha, 1};
            spec.part = {};
            const std::vector<Row> expected = RowsOf(set, spec, sequence);
            mixed += expected[0].share < 1;
            // Micro-batch by micro-batch, of each the parts in their order.
            std::vector<std::vector<Row>> of_part;
            for (int i = 0; i < parts; ++i) {
              spec.part = {i, parts, micro};
              int whole = 0;
              of_part.push_back(RowsOf(set, spec, sequence, &whole));
              CHECK(whole == static_cast<int>(expected.size()));
            }
            std::vector<std::size_t> at(static_cast<std::size_t>(parts));
            std::vector<Row> together;
            const int step = micro == 0 ? 16 : micro, rows = static_cast<int>(expected.size());
            for (int first = 0; first < rows; first += step)
              for (int i = 0; i < parts; ++i) {
                const Share share = ShareOf(std::min(step, rows - first), parts, i);
                for (std::int64_t k = 0; k < share.count; ++k) {
                  auto& next = at[static_cast<std::size_t>(i)];
                  REQUIRE(next < of_part[static_cast<std::size_t>(i)].size());
                  together.push_back(of_part[static_cast<std::size_t>(i)][next++]);
                }
              }
            CHECK(together == expected);
          }
    CHECK(mixed > 0);
  }
}

}  // namespace
}  // namespace ada::data
