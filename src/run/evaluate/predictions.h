// Files of the predictions for a split: a row for each image or class, or the network's outputs.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include "io/file.h"
#include "run/evaluate/evaluator.h"

namespace ada::run {

// `evaluate --predictions`: a CSV with one row an image, and `--per-class`: one row a class. The
// CSV appears whole or not at all (AtomicFile); a device or FIFO gets its rows as they come.
class PredictionsFile {
 public:
  // Throws OutputError where no file can be made at `path`: a missing folder, a folder in its
  // place.
  explicit PredictionsFile(const std::string& path);

  // image: the file's path, or for images without files of their own the index in the split's
  // files, in their order.
  void Add(const std::string& split, const std::string& image, const ImageResult& result);
  // Puts the file in its place. OutputError.
  void Commit();

 private:
  AtomicFile file_;
  std::string rows_;  // not yet written
};

// Hits by class of one split.
class ClassTable {
 public:
  explicit ClassTable(int classes) : counts_(static_cast<std::size_t>(classes)) {}

  void Add(const ImageResult& result);
  // A row a class: split,class,name,images,top1,top5,precision. top1 and top5 of the class's images
  // (empty where there are none), precision: the share of the images predicted as this class that
  // are of it (empty where none is). `names` may be shorter than the table.
  void Write(const std::string& split, const std::vector<std::string>& names,
             std::ostream& out) const;

 private:
  struct Counts {
    std::int64_t images = 0, top1 = 0, top5 = 0, predicted = 0;
  };
  std::vector<Counts> counts_;
};

// `evaluate --outputs`: a network's outputs for the images of a split, as safetensors. One tensor,
// `outputs`, fp32 [images, classes] (or what an image has instead of classes), written row by row:
// memory does not grow with it. The file appears whole or not at all (AtomicFile); a device or FIFO
// gets its rows as they come.
class OutputsFile {
 public:
  // Throws OutputError where no file can be made at `path`.
  OutputsFile(const std::string& path, std::int64_t images, int classes)
      : OutputsFile(path, {images, classes}) {}
  // dims: of the tensor, images first.
  OutputsFile(const std::string& path, const std::vector<std::int64_t>& dims);

  // Adds the outputs of image `image` of the split; calls come in order. Images that are skipped,
  // because they could not be read, become rows of NaN.
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

}  // namespace ada::run
