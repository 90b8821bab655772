// Writes the rows of predictions and classes as CSV, and outputs as a safetensors file.
#include "run/evaluate/predictions.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <ostream>
#include <vector>

#include "error.h"
#include "io/tensor_files/safetensors.h"
#include "io/text.h"
#include "telemetry/csv.h"

namespace ada::run {
namespace {

constexpr std::size_t kBufferBytes = 1 << 16;

// part / whole; "" where there is no whole.
std::string Share(std::int64_t part, std::int64_t whole) {
  return whole == 0 ? "" : NineDigits(static_cast<double>(part) / static_cast<double>(whole));
}

}  // namespace

PredictionsFile::PredictionsFile(const std::string& path)
    : file_(path),
      rows_("split,image,label,prediction,probability,label_probability,loss,rank\n") {}

// Fields that a NaN leaves without meaning are empty: the prediction and its probability, or the
// rank.
void PredictionsFile::Add(const std::string& split, const std::string& image,
                          const ImageResult& r) {
  const bool predicted = r.prediction >= 0;
  rows_ += split + ',' + telemetry::CsvField(image) + ',' + std::to_string(r.label) + ',';
  rows_ += predicted ? std::to_string(r.prediction) + ',' + NineDigits(r.probability) : ",";
  rows_ += ',' + NineDigits(r.label_probability) + ',' + NineDigits(r.loss) + ',';
  rows_ += (r.rank > 0 ? std::to_string(r.rank) : "") + '\n';
  if (rows_.size() < kBufferBytes) return;
  file_.Write(rows_);
  rows_.clear();
}

void PredictionsFile::Commit() {
  file_.Write(rows_);
  rows_.clear();
  file_.Commit();
}

void ClassTable::Add(const ImageResult& r) {
  Counts& own = counts_.at(static_cast<std::size_t>(r.label));
  ++own.images;
  own.top1 += r.rank == 1 ? 1 : 0;
  own.top5 += r.rank >= 1 && r.rank <= 5 ? 1 : 0;
  if (r.prediction >= 0) ++counts_.at(static_cast<std::size_t>(r.prediction)).predicted;
}

void ClassTable::Write(const std::string& split, const std::vector<std::string>& names,
                       std::ostream& out) const {
  for (std::size_t k = 0; k < counts_.size(); ++k) {
    const Counts& c = counts_[k];
    out << split << ',' << k << ',' << (k < names.size() ? telemetry::CsvField(names[k]) : "")
        << ',' << c.images << ',' << Share(c.top1, c.images) << ',' << Share(c.top5, c.images)
        << ',' << Share(c.top1, c.predicted) << '\n';
  }
}

namespace {

// Rows are collected up to this size before they are written.
constexpr std::size_t kOutputBufferBytes = 1 << 16;

}  // namespace

// The head of a safetensors file has all sizes, so the number of images must be known before the
// first row.
OutputsFile::OutputsFile(const std::string& path, const std::vector<std::int64_t>& dims)
    : file_(path),
      images_(dims.front()),
      values_(static_cast<std::size_t>(
          std::accumulate(dims.begin() + 1, dims.end(), std::int64_t{1}, std::multiplies<>()))) {
  buffer_ = SafetensorsHead("outputs", DType::kF32, dims);
}

void OutputsFile::Append(std::span<const float> row) {
  ADA_CHECK(next_ < images_ && row.size() == values_);
  ++next_;
  buffer_.append(reinterpret_cast<const char*>(row.data()), row.size_bytes());
  if (buffer_.size() < kOutputBufferBytes) return;
  file_.Write(buffer_);
  buffer_.clear();
}

// Images that were left out keep their rows, so that row i is image i.
void OutputsFile::FillTo(std::int64_t image) {
  const std::vector<float> none(values_, NAN);
  while (next_ < image) Append(none);
}

void OutputsFile::Add(std::int64_t image, std::span<const float> logits) {
  FillTo(image);
  Append(logits);
}

void OutputsFile::Commit() {
  FillTo(images_);
  file_.Write(buffer_);
  buffer_.clear();
  file_.Commit();
}

}  // namespace ada::run
