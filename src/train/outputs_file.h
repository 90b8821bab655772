// `evaluate --outputs`: what a network gives for the images of a split, as safetensors.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "core/file.h"

namespace ada::train {

// One tensor, `outputs`, fp32 [images, classes], written row by row: memory does not grow with it.
// The file appears whole or not at all (AtomicFile); a device or FIFO gets its rows as they come.
class OutputsFile {
 public:
  // Throws OutputError where no file can be made at `path`.
  OutputsFile(const std::string& path, std::int64_t images, int classes);

  void Add(std::span<const float> logits);  // of the next image
  // Puts the file in its place, when all rows are there. OutputError.
  void Commit();

 private:
  void Flush();
  AtomicFile file_;
  std::int64_t missing_;  // rows
  const std::size_t classes_;
  std::string buffer_;  // not yet written
};

}  // namespace ada::train
