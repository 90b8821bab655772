// What reading silently makes of pictures that their owners may not expect, told from headers.
#pragma once
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// A line for each kind of surprise in a split whose pictures lie in files: 16-bit gray that is cut
// at 255, other 16-bit values whose low byte is dropped, an EXIF orientation that is not applied,
// alpha that is dropped. A split of more than 10,000 pictures is judged by so many of them, evenly
// spread, and the line says so. What cannot be read counts nothing.
std::vector<std::string> WarningsOfPictures(const Dataset& dataset, const std::string& split);

}  // namespace ada::data
