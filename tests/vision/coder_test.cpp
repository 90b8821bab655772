// Default boxes and their coder against ChainerCV's recordings, and against a plain statement of
// the matching.
#include "vision/coder.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "number/random.h"
#include "vision/recorded_vision.h"

namespace ada::vision {
namespace {

using test::Difference;
using test::RecordedCases;
using test::RecordedSpec;

constexpr double kTolerance = 5e-7;  // of fp32 results, relative to the largest

TEST_SUITE("cpu") {
  TEST_CASE("default boxes are the recorded ones to the last bit") {
    for (const std::string& folder : testing::VisionFolders("ssd")) {
      const RecordedCases recorded(folder, "coders", "default_boxes");
      for (const test::GoldenRow& row : recorded.table.rows) {
        CAPTURE(row.at("coder"));
        const DefaultBoxSpec spec = test::SpecOf(row);
        const std::vector<CenterBox> boxes = MakeDefaultBoxes(spec);
        CHECK(static_cast<double>(boxes.size()) == test::Number(row, "boxes"));
        CHECK(spec.Boxes() == static_cast<int>(boxes.size()));
        if (!recorded.Has(row.at("coder"))) continue;
        std::vector<double> values;
        for (const CenterBox& b : boxes) values.insert(values.end(), {b.cy, b.cx, b.h, b.w});
        CHECK(values == recorded.Values<double>(row.at("coder")));
      }
    }
  }

  TEST_CASE("ssd300 and ssd512 have the recorded default boxes") {
    for (const std::string& folder : testing::VisionFolders("ssd")) {
      for (const char* name : {"ssd300", "ssd512"}) {
        const DefaultBoxSpec ours = DefaultBoxesOf(name), theirs = RecordedSpec(folder, name);
        CHECK(ours.input == theirs.input);
        CHECK(ours.grids == theirs.grids);
        CHECK(ours.steps == theirs.steps);
        CHECK(ours.sizes == theirs.sizes);
        CHECK(ours.aspects == theirs.aspects);
        CHECK(ours.center_variance == theirs.center_variance);
        CHECK(ours.size_variance == theirs.size_variance);
      }
    }
    CHECK(Ssd300Boxes().Boxes() == 8732);
    CHECK(Ssd512Boxes().Boxes() == 24564);
  }

  TEST_CASE("encoded boxes are the recorded ones, background rows by a switch") {
    for (const std::string& folder : testing::VisionFolders("ssd")) {
      const RecordedCases recorded(folder, "encode");
      for (const test::GoldenRow& row : recorded.table.rows) {
        const std::string& name = row.at("case");
        CAPTURE(name);
        const BoxCoder coder(RecordedSpec(folder, row.at("coder")));
        const auto boxes = static_cast<std::size_t>(coder.boxes());
        const std::vector<LabeledBox> ground_truth = recorded.LabeledBoxes(name);
        std::vector<float> locations(boxes * 4, NAN), plain(boxes * 4, NAN);
        std::vector<std::int32_t> labels(boxes, -7), plain_labels(boxes, -7);
        EncodeSpec spec;
        spec.overlap = test::Number(row, "iou_thresh");
        coder.Encode(ground_truth, plain.data(), plain_labels.data(), spec);
        spec.last_box_on_background = true;
        coder.Encode(ground_truth, locations.data(), labels.data(), spec);
        CHECK(labels == plain_labels);

        std::vector<std::int32_t> positives, positive_labels;
        std::vector<float> positive_locations;
        for (std::size_t i = 0; i < boxes; ++i) {
          const auto of_box = locations.begin() + static_cast<std::ptrdiff_t>(4 * i);
          if (labels[i] > 0) {
            positives.push_back(static_cast<std::int32_t>(i));
            positive_labels.push_back(labels[i]);
            positive_locations.insert(positive_locations.end(), of_box, of_box + 4);
          }
          const bool equal =
              std::equal(of_box, of_box + 4, plain.begin() + 4 * static_cast<std::ptrdiff_t>(i));
          const bool zero = std::all_of(plain.begin() + static_cast<std::ptrdiff_t>(4 * i),
                                        plain.begin() + static_cast<std::ptrdiff_t>(4 * i + 4),
                                        [](float v) { return v == 0; });
          REQUIRE((labels[i] > 0 ? equal : zero));
        }
        CHECK(static_cast<double>(positives.size()) == test::Number(row, "positives"));
        if (recorded.Has(name + ".mb_loc")) {
          CHECK(labels == recorded.Values<std::int32_t>(name + ".mb_label"));
          CHECK(Difference(locations, recorded.Values<float>(name + ".mb_loc")) < kTolerance);
        } else {
          CHECK(positives == recorded.Values<std::int32_t>(name + ".pos"));
          CHECK(positive_labels == recorded.Values<std::int32_t>(name + ".pos_label"));
          CHECK(Difference(positive_locations, recorded.Values<float>(name + ".pos_loc")) <
                kTolerance);
        }
      }
    }
  }

  TEST_CASE("decoded boxes are the recorded ones, in their order") {
    for (const std::string& folder : testing::VisionFolders("ssd")) {
      const RecordedCases recorded(folder, "decode");
      const BoxCoder coder(RecordedSpec(folder, "small"));
      for (const test::GoldenRow& row : recorded.table.rows) {
        const std::string& name = row.at("case");
        const std::string nms = row.at("nms_thresh").empty() ? "none" : row.at("nms_thresh");
        const std::string key = name + "." + nms + "." + row.at("score_thresh");
        CAPTURE(key);
        DecodeSpec spec;
        spec.nms = nms == "none" ? std::nullopt : std::optional(std::stod(nms));
        spec.score = static_cast<float>(test::Number(row, "score_thresh"));
        spec.as_recorded = true;
        const std::vector<float> locations = recorded.Values<float>(name + ".mb_loc"),
                                 scores = recorded.Values<float>(name + ".mb_conf");
        const std::vector<Detection> found =
            coder.Decode(locations.data(), scores.data(), std::stoi(row.at("classes")), spec);
        std::vector<float> boxes, found_scores;
        std::vector<std::int32_t> labels;
        for (const Detection& one : found) {
          boxes.insert(boxes.end(), {one.box.y0, one.box.x0, one.box.y1, one.box.x1});
          found_scores.push_back(one.score);
          labels.push_back(one.label);
        }
        CHECK(labels == recorded.Values<std::int32_t>(key + ".label"));
        CHECK(Difference(boxes, recorded.Values<float>(key + ".bbox")) < kTolerance);
        CHECK(Difference(found_scores, recorded.Values<float>(key + ".score")) < kTolerance);
      }
    }
  }
}

// A coder whose default boxes are few.
DefaultBoxSpec TwoBoxes() {
  DefaultBoxSpec spec;
  spec.input = 20;
  spec.grids = {1};
  spec.steps = {20};
  spec.sizes = {8, 18};
  spec.aspects = {{}};
  return spec;
}

TEST_SUITE("cpu") {
  TEST_CASE("a large score keeps its box where probabilities are not the recorded ones") {
    const BoxCoder coder(TwoBoxes());
    const std::vector<float> locations(8, 0), scores = {0, 200, 100, 0};
    DecodeSpec spec;
    const std::vector<Detection> found = coder.Decode(locations.data(), scores.data(), 2, spec);
    REQUIRE(found.size() == 1);
    CHECK(found[0].score == 1);
    CHECK(found[0].box == Box{6, 6, 14, 14});
    spec.as_recorded = true;
    CHECK(coder.Decode(locations.data(), scores.data(), 2, spec).empty());
  }

  TEST_CASE("candidates bound what a class suppresses, most what an image keeps") {
    const BoxCoder coder(TwoBoxes());
    const std::vector<float> locations(8, 0), scores = {0, 3, 1, 0, 2, 4};
    DecodeSpec spec;
    spec.score = 0.01F;
    spec.nms.reset();
    const auto labels = [&] {
      std::vector<int> found;
      for (const Detection& one : coder.Decode(locations.data(), scores.data(), 3, spec))
        found.push_back(one.label);
      return found;
    };
    CHECK(labels() == std::vector<int>{0, 0, 1, 1});
    spec.candidates = 1;
    CHECK(labels() == std::vector<int>{0, 1});
    spec.candidates = 0;
    spec.most = 3;  // 0.844 and 0.117 of label 0, 0.114 and 0.867 of label 1
    CHECK(labels() == std::vector<int>{0, 0, 1});
  }
}

// The matching as it is usually stated: a whole matrix, searched anew for each pair.
std::vector<std::int32_t> PlainLabels(const std::vector<CenterBox>& defaults,
                                      const std::vector<LabeledBox>& ground_truth, double least) {
  std::vector<std::vector<double>> overlaps(defaults.size(),
                                            std::vector<double>(ground_truth.size()));
  for (std::size_t i = 0; i < defaults.size(); ++i) {
    const CenterBox& d = defaults[i];
    const BasicBox<double> box{d.cy - d.h / 2, d.cx - d.w / 2, d.cy + d.h / 2, d.cx + d.w / 2};
    for (std::size_t j = 0; j < ground_truth.size(); ++j)
      overlaps[i][j] = Overlap(box, ground_truth[j].box);
  }
  std::vector<std::int32_t> labels(defaults.size(), 0);
  std::vector<std::vector<double>> left = overlaps;
  while (true) {
    std::size_t row = 0, column = 0;
    double largest = 0;
    for (std::size_t i = 0; i < defaults.size(); ++i) {
      for (std::size_t j = 0; j < ground_truth.size(); ++j) {
        if (!(left[i][j] > largest)) continue;
        largest = left[i][j];
        row = i;
        column = j;
      }
    }
    if (largest <= 1e-6) break;
    labels[row] = ground_truth[column].label + 1;
    std::fill(left[row].begin(), left[row].end(), 0);
    for (std::vector<double>& of_default : left) of_default[column] = 0;
  }
  for (std::size_t i = 0; i < defaults.size(); ++i) {
    double largest = -1;
    std::int32_t label = 0;
    for (std::size_t j = 0; j < ground_truth.size(); ++j) {
      if (overlaps[i][j] > largest) label = ground_truth[j].label + 1;
      largest = std::max(largest, overlaps[i][j]);
    }
    if (labels[i] == 0 && largest >= least) labels[i] = label;
  }
  return labels;
}

TEST_SUITE("cpu") {
  TEST_CASE("matching agrees with its plain statement, for boxes of every kind") {
    const float nan = std::numeric_limits<float>::quiet_NaN(),
                infinite = std::numeric_limits<float>::infinity();
    RandomStream random(19, 0);
    const auto uniform = [&](double low, double high) {
      return static_cast<float>(low + (high - low) * static_cast<double>(random.Below(1 << 20)) /
                                          (1 << 20));
    };
    const DefaultBoxSpec spec = Ssd300Boxes();
    const BoxCoder coder(spec);
    const std::vector<CenterBox> defaults = MakeDefaultBoxes(spec);
    for (int round = 0; round < 12; ++round) {
      CAPTURE(round);
      std::vector<LabeledBox> ground_truth;
      const int count = 1 + static_cast<int>(random.Below(12));
      for (int j = 0; j < count; ++j) {
        const float y = uniform(-40, 290), x = uniform(-40, 290);
        const float high = uniform(0, 40) * uniform(0, 6), wide = uniform(0, 40) * uniform(0, 6);
        ground_truth.push_back({{y, x, y + high, x + wide}, 100 + j});
        if (random.Below(3) == 0)
          ground_truth.push_back({ground_truth.back().box, 200 + j});  // the same again
        if (random.Below(4) == 0) ground_truth.push_back({{y, x, y, x + wide}, 300 + j});
        if (random.Below(4) == 0) ground_truth.push_back({{y + high, x + wide, y, x}, 400 + j});
        if (random.Below(6) == 0) ground_truth.push_back({{y, nan, y + high, x + wide}, 500 + j});
        if (random.Below(6) == 0)
          ground_truth.push_back({{-infinite, x, infinite, x + wide}, 600 + j});
      }
      const float overlap = round % 3 == 0 ? 0.3F : 0.5F;
      std::vector<float> locations(static_cast<std::size_t>(coder.boxes()) * 4);
      std::vector<std::int32_t> labels(static_cast<std::size_t>(coder.boxes()));
      EncodeSpec encode;
      encode.overlap = overlap;
      coder.Encode(ground_truth, locations.data(), labels.data(), encode);
      std::vector<LabeledBox> sound;  // NaN in a matrix would win everywhere
      for (const LabeledBox& one : ground_truth) {
        const Box& b = one.box;
        if (std::isfinite(b.y0 + b.x0 + b.y1 + b.x1)) sound.push_back(one);
      }
      CHECK(labels == PlainLabels(defaults, sound, overlap));
      CHECK(std::all_of(locations.begin(), locations.end(),
                        [](float v) { return std::isfinite(v); }));
    }
  }

  TEST_CASE("what is encoded is decoded") {
    const BoxCoder coder(Ssd300Boxes());
    const std::vector<LabeledBox> ground_truth = {{{20, 30, 140, 180}, 1},
                                                  {{100.5F, 7, 290, 90}, 0}};
    const auto boxes = static_cast<std::size_t>(coder.boxes());
    std::vector<float> locations(boxes * 4), scores(boxes * 3, 0);
    std::vector<std::int32_t> labels(boxes);
    coder.Encode(ground_truth, locations.data(), labels.data());
    for (std::size_t i = 0; i < boxes; ++i) scores[i * 3 + static_cast<std::size_t>(labels[i])] = 9;
    const std::vector<Detection> found = coder.Decode(locations.data(), scores.data(), 3);
    REQUIRE(found.size() == 2);
    for (const Detection& one : found) {
      const Box& box = ground_truth[one.label == 1 ? 0 : 1].box;
      CHECK(one.box.y0 == doctest::Approx(box.y0).epsilon(1e-5));
      CHECK(one.box.x0 == doctest::Approx(box.x0).epsilon(1e-5));
      CHECK(one.box.y1 == doctest::Approx(box.y1).epsilon(1e-5));
      CHECK(one.box.x1 == doctest::Approx(box.x1).epsilon(1e-5));
    }
  }
}

}  // namespace
}  // namespace ada::vision
