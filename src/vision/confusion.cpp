// Counts are whole numbers, so that the order of images, threads and processes changes nothing.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "error.h"
#include "vision/metrics.h"
#include "vision/numpy.h"

namespace ada::vision {
namespace {

double Share(std::int64_t part, std::int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace

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
