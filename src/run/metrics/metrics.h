// Metrics of a network's predictions for the images of one split against their labels: label images
// by the confusion of classes, boxes by average precision.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "run/metrics/prediction.h"
#include "telemetry/rows.h"

namespace ada::run {

// What Metrics::Finish gives; the caller adds step, epoch and split before rows are written.
struct MetricsResult {
  // One row for each class, then that of all; without step, epoch and split.
  std::vector<telemetry::ClassRow> classes;
  std::vector<telemetry::ConfusionRow> confusion;  // segmentation; likewise
  // The number by which the best evaluation is chosen: mIoU, mAP as in 2007; NaN: nothing to
  // measure.
  double score() const;
  const telemetry::ClassRow& all() const { return classes.back(); }
};

// Made anew for each evaluation of a split and fed by Evaluator::Run, image by image. In a run of
// several processes each has one for its part, which JoinMetrics puts together.
class Metrics {
 public:
  virtual ~Metrics() = default;
  // Adds image `image` of the split by the outputs of the network for it, and returns the
  // prediction in them. Each image is added once. DataError where its labels cannot be read.
  virtual Prediction Add(std::int64_t image, const std::vector<const float*>& outputs) = 0;
  // The metrics of the images so far.
  virtual MetricsResult Finish() const = 0;
  // Saves what it has seen as bytes for another process of this program; Append adds the saved
  // bytes of metrics of the same split whose images come after these.
  virtual std::string Save() const = 0;
  virtual void Append(const std::string& saved) = 0;
};

// Null for classification. `dataset` and `names` (of the classes; may be empty) must outlive it.
std::unique_ptr<Metrics> MakeMetrics(const config::Config& config, const Shape& image, int classes,
                                     const data::Dataset& dataset,
                                     const std::vector<std::string>& names);

}  // namespace ada::run
