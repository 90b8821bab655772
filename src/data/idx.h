// IDX files, the format of MNIST (http://yann.lecun.com/exdb/mnist/): big-endian magic number, one
// 32-bit size a dimension, then unsigned bytes. Plain or .gz. Only bytes, only images and labels.
#pragma once
#include <cstdint>
#include <string>

#include "data/catalog.h"
#include "data/dataset.h"

namespace ada::data {

// FOLDER/NAME where it exists, else FOLDER/NAME.gz.
std::string FindIdxFile(const std::string& folder, std::string_view name);

// Reads images and labels into `into`. The files say how many there are (1 to 1,000,000), so
// subsets are fine; the shape must be the data set's. Throws DataError: missing, truncated,
// oversized, wrong magic, other shape or type, different counts, a label out of range, damaged gzip
// data.
void ReadIdx(const DatasetFacts& facts, const std::string& images_path,
             const std::string& labels_path, const std::string& advice, Dataset* into);

// The number of images by the headers, checked against the sizes of the files; throws as above.
std::int64_t InspectIdx(const DatasetFacts& facts, const std::string& images_path,
                        const std::string& labels_path, const std::string& advice);

}  // namespace ada::data
