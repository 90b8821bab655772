// Suppression against ChainerCV's recordings.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "number/random.h"
#include "vision/box.h"
#include "vision/numpy.h"
#include "vision/recorded_vision.h"

namespace ada::vision {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("the recorded boxes stay, in their order") {
    for (const std::string& folder : testing::VisionFolders("ssd")) {
      const test::RecordedCases recorded(folder, "nms");
      for (const test::GoldenRow& row : recorded.table.rows) {
        const std::string& name = row.at("case");
        CAPTURE(name);
        const std::vector<Box> boxes = recorded.Boxes(name + ".bbox");
        std::vector<std::int32_t> order(boxes.size());
        std::iota(order.begin(), order.end(), 0);
        if (row.at("has_score") == "1")
          order = ByFallingScore(std::span<const float>(recorded.Values<float>(name + ".score")));
        const int limit = row.at("limit").empty() ? 0 : std::stoi(row.at("limit"));
        CHECK(Suppress(boxes, order, test::Number(row, "thresh"), limit) ==
              recorded.Values<std::int32_t>(name + ".selected"));
      }
    }
  }

  TEST_CASE("many boxes are suppressed as a plain loop over all that were kept does it") {
    RandomStream random(5, 0);
    const auto uniform = [&](double low, double high) {
      return low + (high - low) * static_cast<double>(random.Uniform());
    };
    for (const double overlap : {0.0, 0.05, 0.3, 0.45, 0.5, 0.7, 0.95, 1.0}) {
      for (int round = 0; round < 6; ++round) {
        CAPTURE(overlap);
        CAPTURE(round);
        const double offset = round == 4 ? 1e6 : 0, spread = round == 3 ? 1 : 300;
        std::vector<BasicBox<double>> boxes;
        for (int i = 0; i < 400; ++i) {
          const double y = offset + uniform(-50, spread), x = offset + uniform(0, spread);
          const double h = std::exp(uniform(0, 5)), w = round == 5 ? 1000 : std::exp(uniform(0, 5));
          boxes.push_back({y, x, y + h, x + w});
          if (i % 10 == 0) boxes.push_back(boxes.back());
          if (i % 50 == 0) boxes.push_back({y + h, x, y, x + w});
          if (round == 2 && i == 100) boxes.push_back({y, std::nan(""), y + h, x + w});
        }
        std::vector<std::int32_t> order(boxes.size()), plain;
        std::iota(order.begin(), order.end(), 0);
        for (const std::int32_t i : order) {
          const auto reaches = [&](std::int32_t j) {
            return Overlap(boxes[static_cast<std::size_t>(j)],
                           boxes[static_cast<std::size_t>(i)]) >= overlap;
          };
          if (std::none_of(plain.begin(), plain.end(), reaches)) plain.push_back(i);
        }
        CHECK(Suppress(std::span<const BasicBox<double>>(boxes), order, overlap) == plain);
        std::vector<Box> narrow;
        for (const BasicBox<double>& b : boxes)
          narrow.push_back({static_cast<float>(b.y0), static_cast<float>(b.x0),
                            static_cast<float>(b.y1), static_cast<float>(b.x1)});
        std::vector<std::int32_t> plain_narrow;
        for (const std::int32_t i : order) {
          const auto reaches = [&](std::int32_t j) {
            return Overlap(narrow[static_cast<std::size_t>(j)],
                           narrow[static_cast<std::size_t>(i)]) >= static_cast<float>(overlap);
          };
          if (std::none_of(plain_narrow.begin(), plain_narrow.end(), reaches))
            plain_narrow.push_back(i);
        }
        CHECK(Suppress(std::span<const Box>(narrow), order, overlap) == plain_narrow);
      }
    }
  }

  TEST_CASE("of equal scores the later comes first, NaN before all") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> scores = {0.5F, nan, 0.9F, 0.5F, nan, -1};
    CHECK(ByFallingScore(std::span<const float>(scores)) ==
          std::vector<std::int32_t>{4, 1, 2, 3, 0, 5});
    const std::vector<double> close = {1 - 1e-12, 1, 1 - 2e-12};
    CHECK(ByFallingScore(std::span<const double>(close)) == std::vector<std::int32_t>{1, 0, 2});
  }

  TEST_CASE("of more than 16 scores equal ones come in NumPy's order") {
    // numpy 1.23.5: x = [(7 * i) % 5 for i in range(40)], x.argsort()[::-1]; then of x[:24] with
    // x[11] = nan.
    std::vector<float> scores(40);
    for (int i = 0; i < 40; ++i)
      scores[static_cast<std::size_t>(i)] = static_cast<float>(7 * i % 5);
    CHECK(NumpyFallingOrder(scores) ==
          std::vector<std::int32_t>{37, 2,  7,  32, 12, 17, 22, 27, 39, 24, 4,  9,  14, 19,
                                    29, 34, 31, 11, 26, 16, 36, 1,  21, 6,  18, 38, 3,  13,
                                    28, 33, 8,  23, 5,  35, 25, 10, 30, 15, 20, 0});
    scores.resize(24);
    scores[11] = std::numeric_limits<float>::quiet_NaN();
    CHECK(NumpyFallingOrder(scores) == std::vector<std::int32_t>{11, 7,  2,  17, 12, 22, 19, 14,
                                                                 4,  9,  21, 1,  16, 6,  3,  23,
                                                                 8,  13, 18, 10, 5,  15, 20, 0});
    scores.resize(16);
    CHECK(NumpyFallingOrder(scores) == ByFallingScore(std::span<const float>(scores)));
    CHECK(NumpyFallingOrder({}).empty());
  }
}

}  // namespace
}  // namespace ada::vision
