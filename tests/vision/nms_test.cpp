// Suppression against ChainerCV's recordings.
#include "vision/nms.h"

#include <doctest/doctest.h>

#include <numeric>

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

  TEST_CASE("of equal scores the later comes first, NaN before all") {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> scores = {0.5F, nan, 0.9F, 0.5F, nan, -1};
    CHECK(ByFallingScore(std::span<const float>(scores)) ==
          std::vector<std::int32_t>{4, 1, 2, 3, 0, 5});
    const std::vector<double> close = {1 - 1e-12, 1, 1 - 2e-12};
    CHECK(ByFallingScore(std::span<const double>(close)) == std::vector<std::int32_t>{1, 0, 2});
  }
}

}  // namespace
}  // namespace ada::vision
