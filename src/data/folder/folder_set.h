// The data set `folder`: pictures in PATH/train/CLASS and PATH/val/CLASS (or PATH/test/CLASS).
// `val` may be called valid, validation or dev; beside `test` it is split `validation`, else split
// `test`. Without any of them, or where PATH itself holds the classes, split `test` is what
// FileChoices::held_back asks to hold back.
#pragma once
#include <functional>
#include <string>

#include "data/dataset.h"

namespace ada::data {

// Lists both splits; no picture is read, so sizes are not known yet. Throws DataError: what
// ListPictures throws; a split is missing; PATH is a split itself, or holds a root where a class
// should be; the splits have other classes.
Splits OpenFolder(const std::string& path, const FileChoices& choices = {});

// The size of the set's first picture that can be read; of its very first one unless `skip_broken`.
// DataError naming the file.
PictureSize SizeOfFirst(const Dataset& dataset, bool skip_broken);

// Throws DataError naming the first picture that does not become `wanted`, and what to set; `after`
// says what a size becomes. Reads the beginning of every file; what cannot be read is left to
// whoever decodes it if `skip_broken`.
void RequireOneSize(const Dataset& dataset, PictureSize wanted,
                    const std::function<PictureSize(PictureSize)>& after, bool skip_broken);

}  // namespace ada::data
