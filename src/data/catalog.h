// What is known of each public data set before its files are read: shape, counts, file names, where
// it comes from. Private to this room; the network, training and YAML know only dataset.h.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ada::data {

enum class FileLayout { kCifar, kIdx };

// The files of one split. CIFAR: files of records, all of equal length. IDX: images, then labels.
using FileNames = std::vector<std::string_view>;

struct DatasetFacts {
  std::string_view name, title, source;
  FileLayout layout = FileLayout::kCifar;
  int height = 0, width = 0, channels = 0, classes = 0;
  int coarse_classes = 0;            // CIFAR-100: a coarse label stands before the fine one; else 0
  std::int64_t train = 0, test = 0;  // images of the published set
  FileNames train_files, test_files;
  FileNames subfolders;           // where archives put the files, below the folder that was named
  std::vector<double> mean, std;  // per channel, of pixels / 255
  // What the labels 0, 1, ... are called; empty: `names_file`, one name a line, may lie beside the
  // other files and says so.
  std::vector<std::string_view> class_names;
  std::string_view names_file;

  int per_image() const { return height * width * channels; }
};

// All public data sets, in the order of `ada-train datasets`.
const std::vector<DatasetFacts>& Catalog();
// Throws DataError with the known names where there is none of that name.
const DatasetFacts& FactsOf(std::string_view name);

// The advice at the end of every message about a damaged or missing file.
std::string FetchAdvice(const DatasetFacts& facts, const std::string& folder);

// The folder that holds the set's files: `folder` itself or one of `subfolders` below it. Throws
// DataError: no such folder, not a folder, none of the files in it.
std::string FindFolder(const DatasetFacts& facts, const std::string& folder);

}  // namespace ada::data
