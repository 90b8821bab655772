// The published data sets themselves, where they are on this machine; skipped in sight elsewhere.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>

#include "data/dataset.h"
#include "skip.h"

namespace ada::data {
namespace {

constexpr char kCifar10[] = "data/cifar-10";
constexpr char kFashion[] = "/usr/share/datasets/fashion-mnist";

struct Moments {
  double mean = 0, std = 0;      // of all pixels of a channel, / 255
  double mean_of_image_std = 0;  // each image's own standard deviation, averaged
};

Moments Measure(const Dataset& dataset, std::size_t channel) {
  const auto channels = static_cast<std::size_t>(dataset.channels);
  const std::size_t size = dataset.pixels.size() / dataset.labels.size();
  const std::size_t pixels_each = size / channels;
  const auto pixels = static_cast<double>(pixels_each);
  const auto images = static_cast<double>(dataset.images());
  double sum = 0, squares = 0, deviations = 0;
  for (std::size_t image = 0; image < dataset.labels.size(); ++image) {
    double image_sum = 0, image_squares = 0;
    for (std::size_t i = image * size + channel; i < (image + 1) * size; i += channels) {
      const double value = dataset.pixels[i] / 255.0;
      image_sum += value;
      image_squares += value * value;
    }
    sum += image_sum;
    squares += image_squares;
    deviations += std::sqrt(image_squares / pixels - std::pow(image_sum / pixels, 2));
  }
  Moments moments;
  moments.mean = sum / (pixels * images);
  moments.std = std::sqrt(squares / (pixels * images) - moments.mean * moments.mean);
  moments.mean_of_image_std = deviations / images;
  return moments;
}

std::vector<std::int64_t> LabelCounts(const Dataset& dataset) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(dataset.classes));
  for (const std::uint8_t label : dataset.labels) ++counts[label];
  return counts;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("real CIFAR-10") {
    if (!std::filesystem::exists(std::string(kCifar10) + "/data_batch_1.bin")) {
      ADA_SKIP(std::string("no CIFAR-10 in ") + kCifar10 + " (ada-train fetch cifar10 fetches it)");
    }
    const Splits splits = Read("cifar10", kCifar10);
    CHECK(LabelCounts(splits.train) == std::vector<std::int64_t>(10, 5000));
    CHECK(LabelCounts(splits.test) == std::vector<std::int64_t>(10, 1000));
    const double std_of_all[3] = {0.2470, 0.2435, 0.2616};
    for (std::size_t c = 0; c < 3; ++c) {
      const Moments moments = Measure(splits.train, c);
      CHECK(std::abs(moments.mean - splits.mean[c]) < 1e-3);
      CHECK(std::abs(moments.mean_of_image_std - splits.std[c]) < 1e-3);
      CHECK(std::abs(moments.std - std_of_all[c]) < 1e-3);
    }
  }

  TEST_CASE("real Fashion-MNIST") {
    if (!std::filesystem::exists(kFashion)) {
      ADA_SKIP("Debian's dataset-fashion-mnist is not installed");
    }
    const DatasetInfo info = Inspect("fashion_mnist", kFashion);
    CHECK(info.train == 60000);
    CHECK(info.test == 10000);
    const Splits splits = Read("fashion_mnist", kFashion);
    CHECK(LabelCounts(splits.train) == std::vector<std::int64_t>(10, 6000));
    CHECK(LabelCounts(splits.test) == std::vector<std::int64_t>(10, 1000));
    const Moments moments = Measure(splits.train, 0);
    CHECK(std::abs(moments.mean - splits.mean[0]) < 1e-3);
    CHECK(std::abs(moments.std - splits.std[0]) < 1e-3);
  }
}

}  // namespace ada::data
