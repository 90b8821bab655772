// Label images: PNG files whose values are numbers of classes, not colors.
#pragma once
#include <string>

#include "data/images/picture.h"

namespace ada::data {

// The values of a gray PNG of up to 8 bits, or the indices of a palette PNG (not its colors), as
// they are: one channel. DataError naming `path`: what picture.h throws, and every other kind of
// picture.
Picture DecodeLabelPng(FileBytes file, const std::string& path);
Picture ReadLabelPng(const std::string& path);

// The colors of a PNG of any kind, RGB: of a palette its colors. DataError as above, and for
// pictures of other formats, most of which change colors.
Picture ReadColorPng(const std::string& path);

}  // namespace ada::data
