// The data set `folder`: pictures in PATH/train/CLASS and PATH/val/CLASS (or PATH/test/CLASS).
#pragma once
#include <string>

#include "data/dataset.h"

namespace ada::data {

// Lists both splits and looks at the first picture of each; nothing else is read. Throws DataError:
// what ListPictures throws; a split is missing; PATH is a split itself, or holds a root where a
// class should be; the splits have other classes.
Splits OpenFolder(const std::string& path);

// Throws DataError naming the first picture that has another size than the set's first, and what to
// set. Reads the beginning of every file; what cannot be read is left to whoever decodes it if
// `skip_broken`.
void RequireOneSize(const Dataset& dataset, bool skip_broken);

}  // namespace ada::data
