// Random crops, color jitter and random erasing against torchvision's, given its draws
// (tests/golden/pictures).
#include "data/images/random_changes.h"

#include <doctest/doctest.h>

#include <cmath>
#include <deque>
#include <set>
#include <string>
#include <vector>

#include "data/recorded_pictures.h"
#include "golden_table.h"

namespace ada::data {
namespace {

using testing::GoldenRow;
using testing::Number;

// Recorded draws in their order, and the ranges that were asked for.
class RecordedDraws : public Draws {
 public:
  std::deque<double> values;
  std::vector<float> lows, highs;

  float Uniform(float low, float high) override {
    lows.push_back(low);
    highs.push_back(high);
    return static_cast<float>(Next());
  }
  int Below(int n) override {
    const int value = static_cast<int>(Next());
    CHECK(value < n);
    return value;
  }
  double Normal() override { return Next(); }

 private:
  double Next() {
    REQUIRE(!values.empty());
    const double value = values.front();
    values.pop_front();
    return value;
  }
};

// The rows of each case, one after the other.
std::vector<std::vector<GoldenRow>> CasesOf(const std::string& path) {
  std::vector<std::vector<GoldenRow>> cases;
  for (const GoldenRow& row : testing::ReadGolden(path).rows) {
    if (cases.empty() || cases.back().front().at("case") != row.at("case")) cases.emplace_back();
    cases.back().push_back(row);
  }
  return cases;
}

RecordedDraws DrawsOf(const std::vector<GoldenRow>& trials) {
  RecordedDraws draws;
  for (const GoldenRow& row : trials) {
    draws.values.push_back(Number(row, "area_draw"));
    draws.values.push_back(Number(row, "log_ratio_draw"));
  }
  if (!trials.back().at("top_draw").empty()) {
    draws.values.push_back(Number(trials.back(), "top_draw"));
    draws.values.push_back(Number(trials.back(), "left_draw"));
  }
  return draws;
}

int Integer(const GoldenRow& row, const std::string& column) {
  return static_cast<int>(Number(row, column));
}

Box BoxOf(const GoldenRow& row) {
  return {Integer(row, "top"), Integer(row, "left"), Integer(row, "h"), Integer(row, "w")};
}

Picture PictureOf(const SafetensorsFile& file, const std::string& name) {
  const TensorEntry& entry = *file.Find(name);
  return {static_cast<int>(entry.shape[0]), static_cast<int>(entry.shape[1]),
          static_cast<int>(entry.shape[2]), RecordedBytes(file, name)};
}

// The largest difference of two pixels.
int Difference(const Picture& picture, const SafetensorsFile& file, const std::string& name) {
  const std::vector<std::uint8_t> expected = RecordedBytes(file, name);
  REQUIRE(expected.size() == picture.pixels.size());
  int most = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    most = std::max(most, std::abs(expected[i] - picture.pixels[i]));
  return most;
}

TEST_SUITE("cpu") {
  TEST_CASE("random resized crops are torchvision's, given its draws") {
    const auto cases = CasesOf("pictures/random_resized_crop.csv");
    REQUIRE(cases.size() == 80);
    for (const std::vector<GoldenRow>& trials : cases) {
      const GoldenRow& last = trials.back();
      CAPTURE(last.at("case"));
      const RandomCropSpec spec{{Number(last, "scale0"), Number(last, "scale1")},
                                {Number(last, "ratio0"), Number(last, "ratio1")}};
      RecordedDraws draws = DrawsOf(trials);
      const PictureSize size{Integer(last, "H"), Integer(last, "W")};
      CHECK(RandomCropBox(spec, size, &draws) == BoxOf(last));
      CHECK(draws.values.empty());
      // torch's fp32 logarithm is not always the nearest one.
      CHECK(std::abs(static_cast<double>(draws.lows[1]) - Number(last, "log_ratio0")) <= 1e-7);
      CHECK(std::abs(static_cast<double>(draws.highs[1]) - Number(last, "log_ratio1")) <= 1e-7);
    }
  }

  TEST_CASE("boxes of random erasing are torchvision's, given its draws") {
    const auto cases = CasesOf("pictures/erasing.csv");
    int none = 0;
    for (const std::vector<GoldenRow>& trials : cases) {
      const GoldenRow& last = trials.back();
      CAPTURE(last.at("case"));
      RandomErasingSpec spec;
      spec.scale = {Number(last, "scale0"), Number(last, "scale1")};
      spec.ratio = {Number(last, "ratio0"), Number(last, "ratio1")};
      RecordedDraws draws = DrawsOf(trials);
      draws.values.push_front(0.25);  // below p
      const PictureSize size{Integer(last, "H"), Integer(last, "W")};
      const std::optional<Box> box = DrawErasedBox(spec, size, &draws);
      REQUIRE(box.has_value() == !last.at("top").empty());
      if (box) CHECK(*box == BoxOf(last));
      none += !box;
      CHECK(draws.values.empty());
    }
    CHECK(none > 0);
    CHECK(none < static_cast<int>(cases.size()));
    RecordedDraws draws;
    draws.values = {0.5};  // not below p
    CHECK(!DrawErasedBox({}, {10, 10}, &draws));
  }

  TEST_CASE("random erasing writes its values into the box alone") {
    const Box box{1, 2, 2, 3};
    const auto erase = [&](const RandomErasingSpec& spec, Draws* draws) {
      std::vector<float> image(4 * 6 * 2, 9.0f);
      EraseBox(spec, box, {4, 6}, 2, draws, image.data());
      return image;
    };
    RandomErasingSpec spec;
    spec.value = {0.5, -1};
    std::vector<float> image = erase(spec, nullptr);
    int erased = 0;
    for (int i = 0; i < 48; ++i) {
      const int y = i / 12, x = i / 2 % 6;
      const bool in = y >= 1 && y < 3 && x >= 2 && x < 5;
      CHECK(image[static_cast<std::size_t>(i)] == (!in ? 9.0f : i % 2 == 0 ? 0.5f : -1.0f));
      erased += in;
    }
    CHECK(erased == 12);
    spec.random_values = true;
    RandomStream stream(3, 4);
    StreamDraws draws(&stream);
    image = erase(spec, &draws);
    CHECK(std::set<float>(image.begin(), image.end()).size() == 13);
    CHECK(stream.position() == 4 * 12);
  }

  TEST_CASE("brightness, contrast, saturation and hue are torchvision's on PIL pictures") {
    const SafetensorsFile file = Recorded("jitter.safetensors");
    for (const GoldenRow& row : testing::ReadGolden("pictures/jitter.csv").rows) {
      const std::string name = row.at("case"), what = row.at("what");
      CAPTURE(name);
      Picture picture = PictureOf(file, row.at("image"));
      if (name.starts_with("all.")) {
        ColorJitter jitter{};
        const std::vector<std::string> order = testing::Words(what),
                                       factors = testing::Words(row.at("factor"));
        for (std::size_t i = 0; i < 4; ++i) {
          jitter.order[i] = static_cast<ColorChange>(std::stoi(order[i]));
          jitter.factor[i] = std::stod(factors[i]);
        }
        ApplyColorJitter(jitter, &picture);
      } else {
        const double factor = Number(row, "factor");
        if (what == "brightness") AdjustBrightness(factor, &picture);
        if (what == "contrast") AdjustContrast(factor, &picture);
        if (what == "saturation") AdjustSaturation(factor, &picture);
        if (what == "hue") AdjustHue(factor, &picture);
      }
      CHECK(Difference(picture, file, name) == 0);
    }
  }

  TEST_CASE("colour jitter draws orders and factors from their ranges") {
    ColorJitterSpec spec;
    spec.brightness = {0.5, 1.5};
    spec.hue = {-0.1, 0.1};
    RandomStream stream(1, 1);
    StreamDraws draws(&stream);
    std::set<std::array<ColorChange, 4>> orders;
    for (int i = 0; i < 500; ++i) {
      const ColorJitter jitter = DrawColorJitter(spec, &draws);
      orders.insert(jitter.order);
      REQUIRE(jitter.factor[0].has_value());
      CHECK(std::abs(*jitter.factor[0] - 1) <= 0.5);
      CHECK(!jitter.factor[1].has_value());
      CHECK(!jitter.factor[2].has_value());
      REQUIRE(jitter.factor[3].has_value());
      CHECK(std::abs(*jitter.factor[3]) <= 0.1000001);
    }
    CHECK(orders.size() == 24);
  }
}

}  // namespace
}  // namespace ada::data
