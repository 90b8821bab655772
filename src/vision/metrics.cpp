// The steps follow eval_detection_voc, calc_detection_voc_prec_rec and calc_detection_voc_ap of
// ChainerCV; where NumPy has a NaN or an order of sums, so have these. Counts are whole numbers, so
// that the order of images, threads and processes changes nothing.
#include "vision/metrics.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "error.h"
#include "vision/box.h"
#include "vision/numpy.h"

namespace ada::vision {
namespace {

constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

// Returns the box with its last row and column.
Box WithLastPixels(const Box& box) { return {box.y0, box.x0, box.y1 + 1, box.x1 + 1}; }

// The box that `box` overlaps most, and by how much; NaN counts as most, as in NumPy.
struct Nearest {
  std::size_t index = 0;
  float overlap = 0;
};
Nearest NearestOf(const Box& box, const std::vector<Box>& others) {
  Nearest nearest{0, Overlap(box, others[0])};
  for (std::size_t i = 1; i < others.size() && !std::isnan(nearest.overlap); ++i) {
    const float overlap = Overlap(box, others[i]);
    if (overlap > nearest.overlap || std::isnan(overlap)) nearest = {i, overlap};
  }
  return nearest;
}

// `values` with NaN as 0, each replaced by the largest of those after it.
std::vector<double> Falling(const std::vector<double>& values) {
  std::vector<double> falling(values.size());
  double largest = 0;
  for (std::size_t i = values.size(); i-- > 0;) {
    if (values[i] > largest) largest = values[i];
    falling[i] = largest;
  }
  return falling;
}

// The precision at a recall is the best at that recall or above, 0 where none reaches it. Each term
// is divided before it is added, as there.
double ElevenPoints(const std::vector<double>& falling, const std::vector<double>& recall) {
  double ap = 0;
  std::size_t at = 0;
  for (int i = 0; i <= 10; ++i) {
    while (at < recall.size() && recall[at] < i * 0.1) ++at;
    ap += (at < recall.size() ? falling[at] : 0) / 11;
  }
  return ap;
}

// Sums the steps of the curve: area is added where the recall changes. A last term of zero stands
// for the step to recall 1, so that the sum has as many terms as NumPy's.
double AreaBelow(const std::vector<double>& falling, const std::vector<double>& recall) {
  std::vector<double> parts;
  double before = 0;
  for (std::size_t i = 0; i < recall.size(); ++i) {
    if (recall[i] != before) parts.push_back((recall[i] - before) * falling[i]);
    before = recall[i];
  }
  if (before != 1) parts.push_back(0);
  return NumpySum(std::span<const double>(parts));
}

template <class Value>
double MeanBy(std::span<const ClassPrecision> classes, Value value) {
  std::vector<double> values;
  for (const ClassPrecision& one : classes) values.push_back(one.*value);
  return MeanOfNumbers(values);
}

double Share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

AveragePrecision::AveragePrecision(int classes, float overlap)
    : overlap_(overlap), classes_(static_cast<std::size_t>(classes)) {}

void AveragePrecision::Add(std::span<const LabeledBox> ground_truth,
                           std::span<const Detection> detections) {
  std::vector<double> scores;
  for (const Detection& detection : detections) scores.push_back(detection.score);
  Add(ground_truth, detections, scores);
}

void AveragePrecision::Add(std::span<const LabeledBox> ground_truth,
                           std::span<const Detection> detections, std::span<const double> scores) {
  ADA_CHECK(scores.size() == detections.size());
  // Only classes that the image has are gone through, since there may be many.
  std::vector<char> seen(classes_.size(), 0);
  const auto see = [&](int label) {
    ADA_CHECK(label >= 0 && label < classes());
    seen[static_cast<std::size_t>(label)] = 1;
  };
  for (const LabeledBox& box : ground_truth) see(box.label);
  for (const Detection& box : detections) see(box.label);
  for (std::size_t label = 0; label < seen.size(); ++label) {
    if (seen[label] != 0) AddClass(static_cast<int>(label), ground_truth, detections, scores);
  }
}

void AveragePrecision::AddClass(int label, std::span<const LabeledBox> ground_truth,
                                std::span<const Detection> detections,
                                std::span<const double> all_scores) {
  Class& of_class = classes_[static_cast<std::size_t>(label)];
  std::vector<Box> boxes;
  std::vector<char> difficult;
  for (const LabeledBox& box : ground_truth) {
    if (box.label != label) continue;
    boxes.push_back(WithLastPixels(box.box));
    difficult.push_back(box.difficult ? 1 : 0);
    if (!box.difficult) ++of_class.positives;
  }
  std::vector<Box> found;
  std::vector<double> scores;
  for (std::size_t i = 0; i < detections.size(); ++i) {
    if (detections[i].label != label) continue;
    found.push_back(WithLastPixels(detections[i].box));
    scores.push_back(all_scores[i]);
  }
  std::vector<char> taken(boxes.size(), 0);
  // Boxes are matched in order of score. An overlap that is NaN counts as sufficient, because
  // NumPy's comparison `< overlap` is false for it.
  for (const std::int32_t i : ByFallingScore(scores)) {
    const auto at = static_cast<std::size_t>(i);
    int outcome = 0;
    if (!boxes.empty()) {
      const Nearest nearest = NearestOf(found[at], boxes);
      if (!(nearest.overlap < overlap_)) {
        outcome = difficult[nearest.index] != 0 ? -1 : taken[nearest.index] != 0 ? 0 : 1;
        taken[nearest.index] = 1;
      }
    }
    of_class.found.push_back({scores[at], outcome});
  }
}

// For each class how many positives, how many detections, and these.
std::string AveragePrecision::Save() const {
  std::string saved;
  const auto put = [&saved](const void* from, std::size_t bytes) {
    saved.append(static_cast<const char*>(from), bytes);
  };
  for (const Class& one : classes_) {
    const auto found = static_cast<std::int64_t>(one.found.size());
    put(&one.positives, sizeof one.positives);
    put(&found, sizeof found);
    put(one.found.data(), one.found.size() * sizeof(Found));
  }
  return saved;
}

void AveragePrecision::Append(const std::string& saved) {
  std::size_t at = 0;
  const auto take = [&](void* to, std::size_t bytes) {
    ADA_CHECK(bytes <= saved.size() - at);
    std::memcpy(to, saved.data() + at, bytes);
    at += bytes;
  };
  for (Class& one : classes_) {
    std::int64_t positives = 0, found = 0;
    take(&positives, sizeof positives);
    take(&found, sizeof found);
    one.positives += positives;
    const std::size_t before = one.found.size();
    one.found.resize(before + static_cast<std::size_t>(found));
    take(one.found.data() + before, static_cast<std::size_t>(found) * sizeof(Found));
  }
  ADA_CHECK(at == saved.size());
}

PrecisionRecall AveragePrecision::Curve(int label) const {
  const Class& of_class = classes_[static_cast<std::size_t>(label)];
  std::vector<double> scores;
  for (const Found& found : of_class.found) scores.push_back(found.score);
  PrecisionRecall curve;
  std::int64_t right = 0, wrong = 0;
  for (const std::int32_t i : ByFallingScore(scores)) {
    const int outcome = of_class.found[static_cast<std::size_t>(i)].outcome;
    if (outcome == 1) ++right;
    if (outcome == 0) ++wrong;
    // Before the first right or wrong detection this is 0 / 0, NaN.
    curve.precision.push_back(static_cast<double>(right) / static_cast<double>(right + wrong));
    if (of_class.positives > 0)
      curve.recall.push_back(static_cast<double>(right) / static_cast<double>(of_class.positives));
  }
  return curve;
}

std::vector<ClassPrecision> AveragePrecision::Judge() const {
  std::vector<ClassPrecision> judged;
  for (std::size_t label = 0; label < classes_.size(); ++label) {
    ClassPrecision one;
    one.detections = static_cast<std::int64_t>(classes_[label].found.size());
    one.positives = classes_[label].positives;
    one.ap_07 = one.ap = kNoNumber;
    if (one.positives > 0) {
      const PrecisionRecall curve = Curve(static_cast<int>(label));
      const std::vector<double> falling = Falling(curve.precision);
      one.ap_07 = ElevenPoints(falling, curve.recall);
      one.ap = AreaBelow(falling, curve.recall);
    }
    judged.push_back(one);
  }
  return judged;
}

double MeanAp07(std::span<const ClassPrecision> classes) {
  return MeanBy(classes, &ClassPrecision::ap_07);
}

double MeanAp(std::span<const ClassPrecision> classes) {
  return MeanBy(classes, &ClassPrecision::ap);
}

Confusion::Confusion(int classes) : classes_(0) { Grow(classes); }

// Rows become longer, so the counts move to their places in the larger matrix.
void Confusion::Grow(int classes) {
  if (classes <= classes_) return;
  const auto before = static_cast<std::size_t>(classes_), now = static_cast<std::size_t>(classes);
  std::vector<std::int64_t> counts(now * now, 0);
  for (std::size_t row = 0; row < before; ++row) {
    std::copy_n(counts_.begin() + static_cast<std::ptrdiff_t>(row * before), before,
                counts.begin() + static_cast<std::ptrdiff_t>(row * now));
  }
  counts_ = std::move(counts);
  classes_ = classes;
}

void Confusion::Add(std::span<const std::int32_t> ground_truth,
                    std::span<const std::int32_t> prediction) {
  ADA_CHECK(ground_truth.size() == prediction.size());
  // The largest label is found first: the matrix grows at most once an image.
  std::int32_t largest = -1, smallest = 0;
  for (std::size_t i = 0; i < ground_truth.size(); ++i) {
    largest = std::max({largest, ground_truth[i], prediction[i]});
    smallest = std::min(smallest, prediction[i]);
  }
  ADA_CHECK(smallest == 0);
  Grow(largest + 1);
  const auto classes = static_cast<std::size_t>(classes_);
  for (std::size_t i = 0; i < ground_truth.size(); ++i) {
    if (ground_truth[i] < 0) continue;
    ++counts_[static_cast<std::size_t>(ground_truth[i]) * classes +
              static_cast<std::size_t>(prediction[i])];
  }
}

std::string Confusion::Save() const {
  const auto* bytes = reinterpret_cast<const char*>(counts_.data());
  return {bytes, counts_.size() * sizeof(counts_[0])};
}

void Confusion::Append(const std::string& saved) {
  std::vector<std::int64_t> counts(saved.size() / sizeof(std::int64_t));
  std::memcpy(counts.data(), saved.data(), counts.size() * sizeof(counts[0]));
  int classes = 0;
  // The bytes hold a square matrix and say its size by their number.
  while (static_cast<std::size_t>(classes) * static_cast<std::size_t>(classes) < counts.size())
    ++classes;
  Grow(classes);
  for (int ground_truth = 0; ground_truth < classes; ++ground_truth)
    for (int prediction = 0; prediction < classes; ++prediction)
      counts_[static_cast<std::size_t>(ground_truth * classes_ + prediction)] +=
          counts[static_cast<std::size_t>(ground_truth * classes + prediction)];
}

std::int64_t Confusion::Pixels() const {
  return std::accumulate(counts_.begin(), counts_.end(), std::int64_t{0});
}

std::int64_t Confusion::PixelsOf(int ground_truth) const {
  std::int64_t sum = 0;
  for (int c = 0; c < classes_; ++c) sum += Count(ground_truth, c);
  return sum;
}

std::int64_t Confusion::ColumnSum(int prediction) const {
  std::int64_t sum = 0;
  for (int c = 0; c < classes_; ++c) sum += Count(c, prediction);
  return sum;
}

double Confusion::Iou(int label) const {
  const std::int64_t right = Count(label, label);
  return Share(right, PixelsOf(label) + ColumnSum(label) - right);
}

double Confusion::Accuracy(int label) const { return Share(Count(label, label), PixelsOf(label)); }

double Confusion::MeanIou() const {
  std::vector<double> values;
  for (int c = 0; c < classes_; ++c) values.push_back(Iou(c));
  return MeanOfNumbers(values);
}

double Confusion::MeanClassAccuracy() const {
  std::vector<double> values;
  for (int c = 0; c < classes_; ++c) values.push_back(Accuracy(c));
  return MeanOfNumbers(values);
}

double Confusion::PixelAccuracy() const {
  std::int64_t right = 0;
  for (int c = 0; c < classes_; ++c) right += Count(c, c);
  return Share(right, Pixels());
}

}  // namespace ada::vision
