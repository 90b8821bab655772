// `evaluate --outputs`: what a network gives for the images of a split, as safetensors.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file.h"

namespace ada::train {

// One tensor, `outputs`, fp32 [images, classes] (or what an image has instead of classes), written
// row by row: memory does not grow with it.
// The file appears whole or not at all (AtomicFile); a device or FIFO gets its rows as they come.
class OutputsFile {
 public:
  // Throws OutputError where no file can be made at `path`.
  OutputsFile(const std::string& path, std::int64_t images, int classes)
      : OutputsFile(path, {images, classes}) {}
  // dims: of the tensor, images first.
  OutputsFile(const std::string& path, const std::vector<std::int64_t>& dims);

  // Adds the outputs of image `image` of the split, in order; those between, which could not be
  // read, are rows of NaN.
  void Add(std::int64_t image, std::span<const float> logits);
  // Puts the file in its place. OutputError.
  void Commit();

 private:
  void FillTo(std::int64_t image);
  void Append(std::span<const float> row);
  AtomicFile file_;
  const std::int64_t images_;
  std::int64_t next_ = 0;
  const std::size_t values_;  // of an image
  std::string buffer_;        // not yet written
};

}  // namespace ada::train
