// The confusion of a segmentation: pixels counted by true and predicted class, and the metrics that
// follow from the counts.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace ada::vision {

// Segmentation metrics (train/metrics) make one for each evaluation; the metrics are those of
// ChainerCV's eval_semantic_segmentation. Labels of Count, Iou and Accuracy must lie below
// classes().
class Confusion {
 public:
  // At least so many classes; more where a larger label is seen.
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

  // Metrics of a class: its right pixels among those that are or were called it, and among those
  // that are it. NaN where there are none.
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
