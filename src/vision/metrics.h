// Metrics of predictions by class: average precision of boxes, and the confusion of labels of
// pixels.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vision/box.h"

namespace ada::vision {

// Precision and recall after each detection of a class, by falling score.
struct PrecisionRecall {
  std::vector<double> precision;  // NaN while there were only detections of difficult boxes
  std::vector<double> recall;     // empty where there is no positive
};

struct ClassPrecision {
  std::int64_t detections = 0;
  std::int64_t positives = 0;  // labeled boxes that are not difficult
  double ap_07 = 0;  // the mean of 11 precisions, at recalls that are multiples of 0.1 (np.arange)
  double ap = 0;     // the area below the falling curve; both NaN where there is no positive
};

// Average precision as the PASCAL VOC challenge measures detections (Everingham et al., IJCV 2010,
// section 4.2), in the roundings and orders of ChainerCV's eval_detection_voc. Counts image by
// image. A box covers its last pixels too: sides are one longer than the difference of its corners.
// In an image, a class's detections come by falling score; each takes the box that it overlaps most
// (from `overlap` on, the first of equal ones): right if no other took it before, wrong if one did,
// and nothing if it is difficult. Detection metrics (run/metrics) make one for each evaluation
// and add its images in their order; it keeps a score and an outcome for each detection and no
// boxes. One thread at a time.
class AveragePrecision {
 public:
  explicit AveragePrecision(int classes, float overlap = 0.5F);

  // An image: boxes in its pixels from 0. Labels lie in 0..classes - 1.
  void Add(std::span<const LabeledBox> ground_truth, std::span<const Detection> detections);
  // The same with these scores instead of the detections' own, because different numbers in a file
  // may be equal in fp32.
  void Add(std::span<const LabeledBox> ground_truth, std::span<const Detection> detections,
           std::span<const double> scores);

  // What it has seen as bytes for another process of this program, and that of another one, whose
  // images lie after this one's, added. Both must be of the same program and the same number of
  // classes: the bytes have no header.
  std::string Save() const;
  void Append(const std::string& saved);

  int classes() const { return static_cast<int>(classes_.size()); }
  // Sorts all detections of a class; equal scores come as ByFallingScore has them.
  PrecisionRecall Curve(int label) const;
  std::vector<ClassPrecision> Judge() const;  // a class each

 private:
  struct Found {
    double score;
    int outcome;  // 1 right, 0 wrong, -1 neither
  };
  struct Class {
    std::int64_t positives = 0;
    std::vector<Found> found;
  };
  void AddClass(int label, std::span<const LabeledBox> ground_truth,
                std::span<const Detection> detections, std::span<const double> scores);

  float overlap_;
  std::vector<Class> classes_;
};

// The means over the classes that have one: mAP. NaN where none has.
double MeanAp07(std::span<const ClassPrecision> classes);
double MeanAp(std::span<const ClassPrecision> classes);

// The confusion of a segmentation: pixels counted by true and predicted class, and the metrics that
// follow from the counts. Segmentation metrics (run/metrics) make one for each evaluation; the
// metrics are those of ChainerCV's eval_semantic_segmentation. Labels of Count, Iou and Accuracy
// must lie below classes().
class Confusion {
 public:
  // Has at least this many classes, and more if a larger label occurs.
  explicit Confusion(int classes = 0);

  // The pixels of an image. A negative true label is ignored, though the prediction there may still
  // be the largest label. Throws InternalError for lengths that differ and negative predictions.
  void Add(std::span<const std::int32_t> ground_truth, std::span<const std::int32_t> prediction);

  // Its counts as bytes for another process of this program, and those of another one added.
  std::string Save() const;
  void Append(const std::string& saved);

  int classes() const { return classes_; }
  std::int64_t Count(int ground_truth, int prediction) const {
    return counts_[static_cast<std::size_t>(ground_truth) * static_cast<std::size_t>(classes_) +
                   static_cast<std::size_t>(prediction)];
  }
  std::int64_t Pixels() const;                    // that were counted
  std::int64_t PixelsOf(int ground_truth) const;  // of them, of a class

  // Metrics of a class: its correct pixels divided by those that are labeled or predicted as it,
  // and by those that are labeled as it. NaN if there are none.
  double Iou(int label) const;
  double Accuracy(int label) const;
  // Means over the classes that have one, and the share of right pixels; NaN where there is none.
  double MeanIou() const;
  double MeanClassAccuracy() const;
  double PixelAccuracy() const;

 private:
  std::int64_t ColumnSum(int prediction) const;
  void Grow(int classes);

  int classes_;
  std::vector<std::int64_t> counts_;  // [true label, prediction]
};

}  // namespace ada::vision
