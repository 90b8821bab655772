// The binary version of CIFAR-10 and CIFAR-100: records of one label byte (CIFAR-100: coarse, then
// fine) and 3 x 1024 pixels, a plane a color, row by row
// (https://www.cs.toronto.edu/~kriz/cifar.html). Not the Python or Matlab versions.
#pragma once
#include <cstdint>
#include <span>
#include <string>

#include "data/catalog.h"
#include "data/dataset.h"

namespace ada::data {

// Reads the `images` records of `path`, which must have exactly that many, into images `first` and
// following of `into`, which has room for them; pixels to [h, w, c]. Throws DataError: missing,
// truncated, oversized, a label out of range. Safe from several threads, each with images of its
// own.
void ReadCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                   const std::string& advice, std::int64_t first, Dataset* into);

// Only looks at the file's size; throws as above.
void CheckCifarFile(const DatasetFacts& facts, const std::string& path, std::int64_t images,
                    const std::string& advice);

}  // namespace ada::data
