// Metrics of detection and segmentation against ChainerCV's recordings.
#include "vision/metrics.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "error.h"
#include "vision/recorded_vision.h"

namespace ada::vision {
namespace {

// Equal, or both NaN.
bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
bool AllSame(const std::vector<double>& a, const std::vector<double>& b) {
  return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), Same);
}

// The metrics of a recorded case after all its images.
AveragePrecision JudgeOf(const test::RecordedCases& recorded, const std::string& name,
                         const test::GoldenRow& row) {
  const auto values = [&](const char* what) {
    return recorded.Values<std::int32_t>(name + "." + what);
  };
  const std::vector<std::int32_t> found_image = values("pred_image"),
                                  found_label = values("pred_label"),
                                  true_image = values("gt_image"), true_label = values("gt_label");
  const std::vector<Box> found_box = recorded.Boxes(name + ".pred_bbox"),
                         true_box = recorded.Boxes(name + ".gt_bbox");
  const std::vector<float> score = recorded.Values<float>(name + ".pred_score");
  const std::vector<std::uint8_t> difficult = recorded.Values<std::uint8_t>(name + ".gt_difficult");
  int classes = 0;
  for (const std::int32_t label : found_label) classes = std::max(classes, label + 1);
  for (const std::int32_t label : true_label) classes = std::max(classes, label + 1);
  AveragePrecision judge(classes, static_cast<float>(test::Number(row, "iou_thresh")));
  const bool given = row.at("difficult_given") == "1";
  for (std::int32_t image = 0; image < std::stoi(row.at("images")); ++image) {
    std::vector<LabeledBox> ground_truth;
    std::vector<Detection> found;
    for (std::size_t i = 0; i < true_image.size(); ++i) {
      if (true_image[i] == image)
        ground_truth.push_back({true_box[i], true_label[i], given && difficult[i] != 0});
    }
    for (std::size_t i = 0; i < found_image.size(); ++i) {
      if (found_image[i] == image) found.push_back({found_box[i], found_label[i], score[i]});
    }
    judge.Add(ground_truth, found);
  }
  return judge;
}

TEST_SUITE("cpu") {
  TEST_CASE("precision, recall and AP are the recorded ones to the last bit") {
    for (const std::string& folder : testing::VisionFolders("detection")) {
      const test::RecordedCases recorded(folder, "voc");
      for (const test::GoldenRow& row : recorded.table.rows) {
        const std::string &name = row.at("case"), &label = row.at("class");
        CAPTURE(name);
        CAPTURE(label);
        const AveragePrecision judge = JudgeOf(recorded, name, row);
        const std::vector<ClassPrecision> classes = judge.Judge();
        if (label == "map") {
          CHECK(Same(MeanAp07(classes), test::Number(row, "ap_07")));
          CHECK(Same(MeanAp(classes), test::Number(row, "ap")));
          continue;
        }
        const ClassPrecision& one = classes.at(static_cast<std::size_t>(std::stoi(label)));
        CHECK(static_cast<double>(one.detections) == test::Number(row, "predictions"));
        CHECK(static_cast<double>(one.positives) == test::Number(row, "positives"));
        CHECK(Same(one.ap_07, test::Number(row, "ap_07")));
        CHECK(Same(one.ap, test::Number(row, "ap")));
        CHECK((one.positives == 0) == (row.at("rec_is_none") == "1"));
        const PrecisionRecall curve = judge.Curve(std::stoi(label));
        const std::string precision = name + ".prec." + label, recall = name + ".rec." + label;
        if (recorded.Has(precision))
          CHECK(AllSame(curve.precision, recorded.Values<double>(precision)));
        if (recorded.Has(recall)) CHECK(AllSame(curve.recall, recorded.Values<double>(recall)));
      }
    }
  }

  TEST_CASE("scores that fp32 makes equal are told apart where they are given in double") {
    const std::vector<LabeledBox> ground_truth = {{{0, 0, 9, 9}, 0}};
    const std::vector<Detection> found = {{{50, 50, 59, 59}, 0, 1}, {{0, 0, 9, 9}, 0, 1}};
    AveragePrecision same(1), apart(1);
    same.Add(ground_truth,
             found);  // turned round twice: the first, which is wrong, stays the first
    CHECK(same.Judge()[0].ap == 0.5);
    const std::vector<double> scores = {1 - 2e-12, 1 - 1e-12};
    apart.Add(ground_truth, found, scores);
    CHECK(apart.Judge()[0].ap == 1);
  }

  TEST_CASE("confusion and its metrics are the recorded ones to the last bit") {
    for (const std::string& folder : testing::VisionFolders("segmentation")) {
      const test::RecordedCases recorded(folder, "miou");
      const auto of_classes = testing::ReadTable(folder + "/classes.csv");
      for (const test::GoldenRow& row : recorded.table.rows) {
        const std::string& name = row.at("case");
        CAPTURE(name);
        Confusion confusion;
        for (int image = 0; image < std::stoi(row.at("images")); ++image) {
          const std::string number = std::to_string(image);
          confusion.Add(recorded.Values<std::int32_t>(name + ".gt." + number),
                        recorded.Values<std::int32_t>(name + ".pred." + number));
        }
        REQUIRE(confusion.classes() == std::stoi(row.at("classes")));
        std::vector<std::int64_t> counts;
        for (int t = 0; t < confusion.classes(); ++t)
          for (int p = 0; p < confusion.classes(); ++p) counts.push_back(confusion.Count(t, p));
        CHECK(counts == recorded.Values<std::int64_t>(name + ".confusion"));
        CHECK(static_cast<double>(confusion.Pixels()) == test::Number(row, "pixels"));
        CHECK(Same(confusion.MeanIou(), test::Number(row, "miou")));
        CHECK(Same(confusion.PixelAccuracy(), test::Number(row, "pixel_accuracy")));
        CHECK(Same(confusion.MeanClassAccuracy(), test::Number(row, "mean_class_accuracy")));
        for (const test::GoldenRow& one : of_classes.rows) {
          if (one.at("case") != name) continue;
          CHECK(Same(confusion.Iou(std::stoi(one.at("class"))), test::Number(one, "iou")));
          CHECK(Same(confusion.Accuracy(std::stoi(one.at("class"))),
                     test::Number(one, "class_accuracy")));
        }
      }
    }
  }

  TEST_CASE("a confusion has at least the classes that it is told, and refuses what is no class") {
    Confusion confusion(4);
    CHECK(confusion.classes() == 4);
    CHECK(std::isnan(confusion.MeanIou()));
    confusion.Add(std::vector<std::int32_t>{1, -1}, std::vector<std::int32_t>{1, 2});
    CHECK(confusion.Pixels() == 1);
    CHECK(confusion.MeanIou() == 1);
    confusion.Add(std::vector<std::int32_t>{6}, std::vector<std::int32_t>{1});
    CHECK(confusion.classes() == 7);
    CHECK(confusion.Count(1, 1) == 1);
    CHECK(confusion.Count(6, 1) == 1);
    CHECK_THROWS_AS(confusion.Add(std::vector<std::int32_t>{1}, std::vector<std::int32_t>{-1}),
                    InternalError);
    CHECK_THROWS_AS(confusion.Add(std::vector<std::int32_t>{1}, std::vector<std::int32_t>{}),
                    InternalError);
  }

  TEST_CASE("judges of parts, one appended to the other, are the judge of the whole") {
    // Scores with ties, whose order is that of the images.
    std::mt19937 random(3);
    const auto number = [&random](int below) { return static_cast<int>(random() % below); };
    AveragePrecision whole(3),
        parts[] = {AveragePrecision(3), AveragePrecision(3), AveragePrecision(3)};
    Confusion all(2), counts[] = {Confusion(2), Confusion(4), Confusion(2)};
    for (int image = 0; image < 30; ++image) {
      std::vector<LabeledBox> ground_truth;
      std::vector<Detection> found;
      std::vector<std::int32_t> labels, predicted;
      for (int i = number(4); i > 0; --i) {
        const auto y = static_cast<float>(number(20)), x = static_cast<float>(number(20));
        ground_truth.push_back({{y, x, y + 9, x + 9}, number(3), number(5) == 0});
        found.push_back({{y + 1, x, y + 9, x + 8}, number(3), static_cast<float>(number(4)) / 4});
        labels.push_back(number(4) - 1), predicted.push_back(number(3));
      }
      whole.Add(ground_truth, found);
      parts[image / 10].Add(ground_truth, found);
      all.Add(labels, predicted);
      counts[image / 10].Add(labels, predicted);
    }
    for (int part = 1; part < 3; ++part) {
      parts[0].Append(parts[part].Save());
      counts[0].Append(counts[part].Save());
    }
    const std::vector<ClassPrecision> one = whole.Judge(), other = parts[0].Judge();
    for (std::size_t label = 0; label < one.size(); ++label) {
      CHECK(one[label].detections == other[label].detections);
      CHECK(one[label].positives == other[label].positives);
      CHECK(Same(one[label].ap, other[label].ap));
      CHECK(Same(one[label].ap_07, other[label].ap_07));
    }
    for (int ground_truth = 0; ground_truth < all.classes(); ++ground_truth)
      for (int prediction = 0; prediction < all.classes(); ++prediction)
        CHECK(all.Count(ground_truth, prediction) == counts[0].Count(ground_truth, prediction));
  }
}

}  // namespace
}  // namespace ada::vision
