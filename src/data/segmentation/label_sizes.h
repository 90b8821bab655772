// Whether label images fit their pictures, before anything is trained on them.
#pragma once
#include <string>

#include "data/broken_image.h"
#include "data/dataset.h"

namespace ada::data {

// DataError naming both files where a label image of the set has another size than its picture.
// Reads the beginnings of all files, in parallel; what cannot be read is left to whoever decodes
// it. With `skip_broken` so are pairs that do not fit.
void RequireLabelSizes(const Dataset& dataset, bool skip_broken);

// The message of such a pair, for the image with this number in its files; names EXIF where that
// would turn the picture to the size of its labels.
std::string OtherSizeText(const Dataset& dataset, std::int64_t number, PictureSize picture,
                          PictureSize labels);

// The label image of the image with this number in its files, whose picture has that size.
// BrokenLabels where it cannot be read, or has another size.
Picture ReadLabels(const Dataset& dataset, std::int64_t number, PictureSize picture);

}  // namespace ada::data
