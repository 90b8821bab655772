// `evaluate --predictions`: a CSV with one row an image, and `--per-class`: one row a class.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/file.h"
#include "train/evaluate/evaluator.h"

namespace ada::train {

// The CSV appears whole or not at all (AtomicFile); a device or FIFO gets its rows as they come.
class PredictionsFile {
 public:
  // Throws OutputError where no file can be made at `path`: a missing folder, a folder in its
  // place.
  explicit PredictionsFile(const std::string& path);

  // image: the file's path; of images that have no files of their own the number in the split's
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

}  // namespace ada::train
