#include "train/evaluate/outputs_file.h"

#include <cmath>
#include <functional>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/tensor_files/safetensors.h"

namespace ada::train {
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

}  // namespace ada::train
