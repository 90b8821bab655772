// Cropping, flipping and normalizing one image, against a naive version written here.
#include "data/augment.h"

#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <map>
#include <vector>

namespace ada::data {
namespace {

// Builds the padded image, cuts the crop out of it, mirrors it, then looks up each value.
std::vector<float> Naive(const std::vector<std::uint8_t>& pixels, const ImageShape& shape,
                         std::size_t pad, std::size_t top, std::size_t left, bool flip,
                         const std::vector<float>& table) {
  const auto h = static_cast<std::size_t>(shape.height);
  const auto w = static_cast<std::size_t>(shape.width);
  const auto c = static_cast<std::size_t>(shape.channels);
  const std::size_t padded_width = w + 2 * pad;
  std::vector<std::uint8_t> padded((h + 2 * pad) * padded_width * c, 0);
  for (std::size_t y = 0; y < h; ++y) {
    for (std::size_t x = 0; x < w; ++x) {
      for (std::size_t k = 0; k < c; ++k) {
        padded[((y + pad) * padded_width + x + pad) * c + k] = pixels[(y * w + x) * c + k];
      }
    }
  }
  std::vector<float> out(pixels.size());
  for (std::size_t y = 0; y < h; ++y) {
    for (std::size_t x = 0; x < w; ++x) {
      const std::size_t from = flip ? w - 1 - x : x;
      for (std::size_t k = 0; k < c; ++k) {
        const std::uint8_t pixel = padded[((y + top) * padded_width + from + left) * c + k];
        out[(y * w + x) * c + k] = table[k * 256 + pixel];
      }
    }
  }
  return out;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("augment: every crop and flip equals the naive version") {
    for (const ImageShape& shape :
         {ImageShape{5, 4, 3}, ImageShape{3, 6, 1}, ImageShape{2, 2, 5}, ImageShape{1, 1, 3}}) {
      for (const int pad : {0, 1, 2, 7}) {
        std::vector<std::uint8_t> pixels(static_cast<std::size_t>(shape.numel()));
        for (std::size_t i = 0; i < pixels.size(); ++i) {
          pixels[i] = static_cast<std::uint8_t>(i * 37 + 11);
        }
        const std::vector<double> mean(static_cast<std::size_t>(shape.channels), 0.4);
        const std::vector<double> std(static_cast<std::size_t>(shape.channels), 0.3);
        const std::vector<float> table = NormalizeTable(shape.channels, mean, std);
        for (int top = 0; top <= 2 * pad; ++top) {
          for (int left = 0; left <= 2 * pad; ++left) {
            for (const bool flip : {false, true}) {
              std::vector<float> out(pixels.size(), -1000.0f);
              WriteImage(pixels.data(), shape, {top - pad, left - pad, flip}, table, out.data());
              REQUIRE(out == Naive(pixels, shape, static_cast<std::size_t>(pad),
                                   static_cast<std::size_t>(top), static_cast<std::size_t>(left),
                                   flip, table));
            }
          }
        }
      }
    }
  }

  TEST_CASE("augment: the table is ToTensor and Normalize, operation by operation") {
    const std::vector<float> plain = NormalizeTable(2, {}, {});
    const std::vector<float> table = NormalizeTable(2, {0.5, 0.4914}, {0.25, 0.2023});
    REQUIRE(table.size() == 512);
    for (std::size_t p = 0; p < 256; ++p) {
      CHECK(plain[p] == static_cast<float>(p) / 255.0f);
      CHECK(plain[256 + p] == plain[p]);
      const float centered = static_cast<float>(p) / 255.0f - 0.4914f;
      CHECK(table[256 + p] == centered / 0.2023f);
    }
    // From torch 2: (torch.tensor(v) / 255 - mean) / std in float32.
    CHECK(table[0] == -2.0f);
    CHECK(table[255] == 2.0f);
    CHECK(table[256] == doctest::Approx(-2.42906570).epsilon(1e-8));
    CHECK(table[511] == doctest::Approx(2.51408792).epsilon(1e-8));
  }

  TEST_CASE("augment: choices are uniform, and depend on seed, epoch and image alone") {
    const AugmentSpec spec{2, true, true};
    std::map<std::int64_t, int> dy, dx;
    int flips = 0;
    for (int image = 0; image < 10000; ++image) {
      const Placement place = PlaceImage(spec, 1, 3, image);
      REQUIRE(place == PlaceImage(spec, 1, 3, image));
      ++dy[place.dy];
      ++dx[place.dx];
      flips += place.flip;
    }
    // 2000 expected in each; the standard deviation is 40.
    for (const auto& counts : {dy, dx}) {
      REQUIRE(counts.size() == 5);
      CHECK(counts.begin()->first == -2);
      CHECK(counts.rbegin()->first == 2);
      for (const auto& [offset, count] : counts) CHECK(std::abs(count - 2000) < 200);
    }
    CHECK(std::abs(flips - 5000) < 250);
    int same_seed = 0, same_epoch = 0, same_image = 0;
    for (int i = 0; i < 1000; ++i) {
      const Placement place = PlaceImage(spec, 1, 3, i);
      same_seed += place == PlaceImage(spec, 2, 3, i);
      same_epoch += place == PlaceImage(spec, 1, 4, i);
      same_image += place == PlaceImage(spec, 1, 3, i + 1);
    }
    for (const int same : {same_seed, same_epoch, same_image}) CHECK(same < 60);  // 20 expected
  }

  TEST_CASE("augment: what is off changes nothing") {
    for (int image = 0; image < 50; ++image) {
      CHECK(PlaceImage({4, false, false}, 1, 0, image) == Placement{});
      CHECK(PlaceImage({0, true, false}, 1, 0, image) == Placement{});
      const Placement crop = PlaceImage({4, true, false}, 1, 0, image);
      const Placement both = PlaceImage({4, true, true}, 1, 0, image);
      CHECK(crop == Placement{both.dy, both.dx, false});
      CHECK(PlaceImage({4, false, true}, 1, 0, image) == Placement{0, 0, both.flip});
    }
  }
}

}  // namespace ada::data
