// Judges what a network says of the images of one split against their truth: label images by the
// confusion of classes, boxes by average precision.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/dataset.h"
#include "telemetry/rows.h"
#include "train/judge/prediction.h"

namespace ada::train {

struct Verdict {
  // A row a class, then that of all; without step, epoch and split.
  std::vector<telemetry::ClassRow> classes;
  std::vector<telemetry::ConfusionRow> confusion;  // segmentation; likewise
  // By which the best evaluation is chosen: mIoU, mAP as in 2007; NaN: nothing to judge.
  double score() const;
  const telemetry::ClassRow& all() const { return classes.back(); }
};

class Judge {
 public:
  virtual ~Judge() = default;
  // Image `image` of the split, by the outputs of the network for it; what they say. Each image
  // once. DataError where its truth cannot be read.
  virtual Prediction Add(std::int64_t image, const std::vector<const float*>& outputs) = 0;
  // Of the images so far.
  virtual Verdict Finish() const = 0;
  // What it has seen, as bytes for another process of this program; and that of another judge of
  // the same split, whose images lie behind this one's.
  virtual std::string Save() const = 0;
  virtual void Append(const std::string& saved) = 0;
};

// Null for classification. `dataset` and `names` (of the classes; may be empty) must outlive it.
std::unique_ptr<Judge> MakeJudge(const config::Config& config, const Shape& image, int classes,
                                 const data::Dataset& dataset,
                                 const std::vector<std::string>& names);

}  // namespace ada::train
