// mixup and cutmix against plain loops over rows, their draws against the moments of Beta, and
// batches that are the same from wherever a run goes on.
#include <doctest/doctest.h>

#include <cmath>
#include <set>

#include "data/batch.h"
#include "data/dataset.h"
#include "data/loader.h"

namespace ada::data {
namespace {

constexpr MixedShape kMixedShape{9, 12, 3};
constexpr std::uint64_t kMixSeed = 11;

Batch PlainBatch(int rows) {
  Batch batch;
  batch.rows = rows;
  const std::int64_t n = kMixedShape.height * kMixedShape.width * kMixedShape.channels;
  for (std::int64_t i = 0; i < rows * n; ++i)
    batch.images.push_back(std::sin(static_cast<float>(i) * 0.37f));
  for (int row = 0; row < rows; ++row) batch.labels.push_back(row % 3);
  return batch;
}

// torchvision's formulas, pixel by pixel.
std::vector<float> Mixed(const Batch& plain, const MixDraw& draw) {
  std::vector<float> all;
  const std::int64_t n = kMixedShape.height * kMixedShape.width * kMixedShape.channels;
  const auto share = static_cast<float>(draw.share);
  for (int row = 0; row < plain.rows; ++row) {
    const int other = (row + plain.rows - 1) % plain.rows;
    for (std::int64_t i = 0; i < n; ++i) {
      const float mine = plain.images[static_cast<std::size_t>(row * n + i)];
      const float theirs = plain.images[static_cast<std::size_t>(other * n + i)];
      const std::int64_t y = i / kMixedShape.channels / kMixedShape.width;
      const std::int64_t x = i / kMixedShape.channels % kMixedShape.width;
      const bool inside =
          y >= draw.box.top && y < draw.box.bottom && x >= draw.box.left && x < draw.box.right;
      const bool cut = draw.kind == MixDraw::Kind::kCutmix;
      all.push_back(cut ? (inside ? theirs : mine) : theirs * (1 - share) + mine * share);
    }
  }
  return all;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("mixup and cutmix: images, second labels and shares") {
    const Mixing mixing{0.4, 0.4, 1, 0.4};
    int kinds[3] = {};
    for (std::int64_t sequence = 0; sequence < 60; ++sequence) {
      CAPTURE(sequence);
      const int rows = 1 + static_cast<int>(sequence % 4);
      const MixDraw draw = DrawMix(mixing, kMixSeed, sequence, kMixedShape);
      ++kinds[static_cast<int>(draw.kind)];
      const Batch plain = PlainBatch(rows);
      Batch batch = plain;
      batch.shares = {9}, batch.second_labels = {9};  // of the batch before
      MixBatch(mixing, kMixSeed, sequence, kMixedShape, &batch);
      CHECK(batch.labels == plain.labels);
      if (draw.kind == MixDraw::Kind::kNone) {
        CHECK(batch.images == plain.images);
        CHECK(batch.shares.empty());
        CHECK(batch.second_labels.empty());
        continue;
      }
      CHECK(batch.images == Mixed(plain, draw));
      CHECK(batch.shares ==
            std::vector<float>(static_cast<std::size_t>(rows), static_cast<float>(draw.share)));
      for (int row = 0; row < rows; ++row)
        CHECK(batch.second_labels[static_cast<std::size_t>(row)] ==
              plain.labels[static_cast<std::size_t>((row + rows - 1) % rows)]);
    }
    for (const int kind : kinds) CHECK(kind > 3);
  }

  TEST_CASE("shares follow Beta(alpha, alpha), boxes their area") {
    for (const double alpha : {0.2, 1.0, 3.0}) {
      CAPTURE(alpha);
      double sum = 0, square = 0;
      constexpr int kDraws = 20000;
      for (int i = 0; i < kDraws; ++i) {
        const double share = DrawMix({alpha, 1, 0, 1}, kMixSeed, i, kMixedShape).share;
        CHECK_FALSE((share < 0 || share > 1));
        sum += share, square += share * share;
      }
      const double mean = sum / kDraws, variance = square / kDraws - mean * mean;
      CHECK(mean == doctest::Approx(0.5).epsilon(0.02));
      CHECK(variance == doctest::Approx(1 / (4 * (2 * alpha + 1))).epsilon(0.03));
    }
    const MixedShape large{224, 224, 3};
    double area = 0;
    for (int i = 0; i < 2000; ++i) {
      const MixDraw draw = DrawMix({0, 1, 1, 1}, kMixSeed, i, large);
      const auto pixels =
          static_cast<double>((draw.box.bottom - draw.box.top) * (draw.box.right - draw.box.left));
      CHECK(draw.share == doctest::Approx(1 - pixels / (224 * 224)).epsilon(1e-12));
      area += pixels / (224 * 224) / 2000;
    }
    CHECK(area > 0.2);  // half of the image, less what its edges cut off
    CHECK(area < 0.5);
  }

  TEST_CASE("a tiny alpha, whose gammas lie below fp64's range, tosses a coin") {
    for (const double alpha : {1e-3, 1e-5, 1e-300, 5e-324}) {
      CAPTURE(alpha);
      int ones = 0, ends = 0;
      constexpr int kDraws = 2000;
      for (int i = 0; i < kDraws; ++i) {
        const double share = DrawMix({alpha, 1, 0, 1}, kMixSeed, i, kMixedShape).share;
        REQUIRE(share >= 0);  // no NaN
        REQUIRE(share <= 1);
        ones += share > 0.5 ? 1 : 0, ends += share < 1e-6 || share > 1 - 1e-6 ? 1 : 0;
        const MixDraw cut = DrawMix({0, 1, alpha, 1}, kMixSeed, i, kMixedShape);
        REQUIRE(cut.share >= 0);
        REQUIRE(cut.share <= 1);
      }
      CHECK(ones == doctest::Approx(kDraws / 2).epsilon(0.1));
      CHECK(ends > kDraws * 0.95);
    }
  }

  TEST_CASE("a loader's mixed batches do not depend on threads or where it begins") {
    const Splits splits = MakeSynthetic({8, 8, 3, 4, 40, 4}, 3);
    LoaderSpec spec;
    spec.batch_size = 8, spec.shuffle = true, spec.mixing = {0.5, 0.5, 1, 0.5};
    spec.workers = 0;
    Loader straight(splits.train, spec);
    spec.workers = 2;
    Loader threads(splits.train, spec);
    straight.Seek(0, 0);
    for (std::int64_t i = 0; i < 10; ++i) {
      const Batch& batch = straight.Next();
      threads.Seek(i / 5, i % 5);
      const Batch& other = threads.Next();
      CHECK(batch.images == other.images);
      CHECK(batch.second_labels == other.second_labels);
      CHECK(batch.shares == other.shares);
      CHECK(batch.shares.size() == 8);
    }
  }
}

}  // namespace ada::data
