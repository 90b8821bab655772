// Labelled images in memory, read from the files of a data set or made from the seed. Decoded once
// at start; the loader turns them into batches.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/pages.h"
#include "data/catalog.h"

namespace ada::data {

// Bytes of images; what resize() adds has no value until it is written.
using PixelBytes = std::vector<std::uint8_t, PageAllocator<std::uint8_t>>;

struct Dataset {
  std::string name;
  int height = 0, width = 0, channels = 0, classes = 0;
  PixelBytes pixels;                 // [images, height, width, channels]
  std::vector<std::uint8_t> labels;  // [images]
  std::int64_t images() const { return static_cast<std::int64_t>(labels.size()); }
};
struct Splits {
  Dataset train, test;
  std::vector<double> mean, std;  // `normalize: standard`, per channel, of pixels / 255
};

// Reads the set called `name`, one with files, from `folder`, or from the subfolder that the
// set's archive makes there. CIFAR must have its published sizes; IDX files say theirs. Throws
// DataError naming file and byte offset: missing, truncated, oversized, wrong magic, label out of
// range.
Splits Read(const std::string& name, const std::string& folder);
// Learnable images: each class has its own random pattern, each image that pattern plus noise.
// Image i has label i % classes and depends on the seed, the shape, the classes and i alone. Throws
// ConfigError for sizes that make no sense.
Splits MakeSynthetic(const SyntheticSpec& spec, std::uint64_t seed);

// Shapes and sizes without reading images, for --dry-run and checks; throws DataError like Read
// where files are missing or have the wrong size.
struct DatasetInfo {
  int height = 0, width = 0, channels = 0, classes = 0;
  std::int64_t train = 0, test = 0;
};
DatasetInfo Inspect(const std::string& name, const std::string& folder);

// What the labels 0, 1, ... of the set are called, one name a class; empty where nobody says it:
// the set has no files, or its own list of names is not among those in `folder`. Throws DataError:
// no such folder, a list of another length.
std::vector<std::string> ClassNames(const std::string& name, const std::string& folder);

// Keeps the first `count` images (0, or more than there are: all) / splits the last `count` off
// (ConfigError where none would be left).
void Limit(Dataset& dataset, std::int64_t count);
Dataset SplitLast(Dataset& dataset, std::int64_t count);

// One line each for `ada-train datasets`: name, shape, classes, images, source.
std::vector<std::string> ListDatasets();

}  // namespace ada::data
