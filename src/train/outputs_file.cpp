#include "train/outputs_file.h"

#include "core/error.h"
#include "core/tensor_files/safetensors.h"

namespace ada::train {
namespace {

constexpr std::size_t kOutputBufferBytes = 1 << 16;

}  // namespace

OutputsFile::OutputsFile(const std::string& path, std::int64_t images, int classes)
    : file_(path), missing_(images), classes_(static_cast<std::size_t>(classes)) {
  buffer_ = SafetensorsHead("outputs", DType::kF32, {images, classes});
}

void OutputsFile::Add(std::span<const float> logits) {
  ADA_CHECK(missing_ > 0 && logits.size() == classes_);
  --missing_;
  buffer_.append(reinterpret_cast<const char*>(logits.data()), logits.size_bytes());
  if (buffer_.size() >= kOutputBufferBytes) Flush();
}

void OutputsFile::Flush() {
  file_.Write(buffer_);
  buffer_.clear();
}

void OutputsFile::Commit() {
  ADA_CHECK(missing_ == 0);
  Flush();
  file_.Commit();
}

}  // namespace ada::train
