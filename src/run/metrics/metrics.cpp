// The counting is in vision/ (Confusion, AveragePrecision); here outputs become predictions and
// counts become rows.
#include "run/metrics/metrics.h"

#include <cmath>

#include "error.h"
#include "run/facts/data_facts.h"
#include "vision/metrics.h"

namespace ada::run {
namespace {

using telemetry::ClassRow;
using telemetry::ConfusionRow;

// Labels are read from their files in their own size, and the prediction is brought to that size,
// so that what is measured does not depend on how the network's input was resized.
class SegmentationMetrics final : public Metrics {
 public:
  SegmentationMetrics(const config::Config& config, const Shape& image, int classes,
                      const data::Dataset& dataset, const std::vector<std::string>& names)
      : maker_(config, image, classes), dataset_(dataset), names_(names), confusion_(classes) {}

  Prediction Add(std::int64_t image, const std::vector<const float*>& outputs) override {
    const data::Picture labels = dataset_.label_images->Read(dataset_.NumberInFiles(image));
    ground_truth_.resize(labels.pixels.size());
    for (std::size_t i = 0; i < ground_truth_.size(); ++i)
      ground_truth_[i] =
          labels.pixels[i] == data::kIgnoredPixel ? data::kNoLabel : labels.pixels[i];
    Prediction prediction = maker_.Make(outputs, {labels.height, labels.width});
    confusion_.Add(ground_truth_, prediction.labels);
    return prediction;
  }

  MetricsResult Finish() const override {
    MetricsResult metrics_result;
    for (int label = 0; label < confusion_.classes(); ++label) AddClass(label, metrics_result);
    ClassRow all;
    all.name = telemetry::kAllClasses;
    all.count = confusion_.Pixels();
    all.iou = confusion_.MeanIou();
    all.accuracy = confusion_.MeanClassAccuracy();
    all.pixel_accuracy = confusion_.PixelAccuracy();
    metrics_result.classes.push_back(all);
    return metrics_result;
  }

  std::string Save() const override { return confusion_.Save(); }
  void Append(const std::string& saved) override { confusion_.Append(saved); }

 private:
  void AddClass(int label, MetricsResult& metrics_result) const {
    ClassRow row;
    row.name = ClassName(names_, label);
    row.iou = confusion_.Iou(label);
    row.accuracy = confusion_.Accuracy(label);
    for (int other = 0; other < confusion_.classes(); ++other) {
      const std::int64_t count = confusion_.Count(label, other);
      row.count += count;
      // Pairs that never occur have no row; a class's own pair always has one.
      if (count == 0 && other != label) continue;
      ConfusionRow pair;
      pair.truth = row.name;
      pair.prediction = ClassName(names_, other);
      pair.count = count;
      metrics_result.confusion.push_back(pair);
    }
    metrics_result.classes.push_back(row);
  }

  PredictionMaker maker_;
  const data::Dataset& dataset_;
  const std::vector<std::string>& names_;
  vision::Confusion confusion_;
  std::vector<std::int32_t> ground_truth_;
};

// Predicted classes are numbered without the background, as the objects are.
class DetectionMetrics final : public Metrics {
 public:
  DetectionMetrics(const config::Config& config, const Shape& image, int classes,
                   const data::Dataset& dataset, const std::vector<std::string>& names)
      : maker_(config, image, classes),
        dataset_(dataset),
        names_(names),
        precision_(classes - 1) {}  // without the background

  Prediction Add(std::int64_t image, const std::vector<const float*>& outputs) override {
    const data::ImageObjects& truth =
        dataset_.objects->at(static_cast<std::size_t>(dataset_.NumberInFiles(image)));
    Prediction prediction = maker_.Make(outputs, truth.size);
    precision_.Add(truth.boxes, prediction.boxes);
    return prediction;
  }

  MetricsResult Finish() const override {
    const std::vector<vision::ClassPrecision> judged = precision_.Judge();
    MetricsResult metrics_result;
    ClassRow all;
    all.name = telemetry::kAllClasses;
    for (std::size_t label = 0; label < judged.size(); ++label) {
      ClassRow row;
      row.name = ClassName(names_, static_cast<int>(label));
      row.count = judged[label].positives;
      row.ap_07 = judged[label].ap_07;
      row.ap = judged[label].ap;
      all.count += row.count;
      metrics_result.classes.push_back(row);
    }
    all.ap_07 = vision::MeanAp07(judged);
    all.ap = vision::MeanAp(judged);
    metrics_result.classes.push_back(all);
    return metrics_result;
  }
  std::string Save() const override { return precision_.Save(); }
  void Append(const std::string& saved) override { precision_.Append(saved); }

 private:
  PredictionMaker maker_;
  const data::Dataset& dataset_;
  const std::vector<std::string>& names_;
  vision::AveragePrecision precision_;
};

}  // namespace

// Segmentation fills iou, detection ap_07: the one that is there tells the task.
double MetricsResult::score() const {
  const ClassRow& row = all();
  return row.iou ? *row.iou : row.ap_07.value_or(NAN);
}

std::unique_ptr<Metrics> MakeMetrics(const config::Config& config, const Shape& image, int classes,
                                     const data::Dataset& dataset,
                                     const std::vector<std::string>& names) {
  if (config.task == Task::kSegmentation)
    return std::make_unique<SegmentationMetrics>(config, image, classes, dataset, names);
  if (config.task == Task::kDetection)
    return std::make_unique<DetectionMetrics>(config, image, classes, dataset, names);
  return nullptr;
}

}  // namespace ada::run
