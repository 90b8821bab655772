// What the headers of pictures tell before any is decoded: how much memory decoding takes, and what
// may surprise the owner of the pictures.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// What decoding takes of memory while a loader's threads each hold a picture, told from headers.

// A run adds it to the memory that it asks for before it starts: the threads of the loader may each
// decode one of the largest pictures at the same moment.
struct DecodingNeed {
  std::uint64_t bytes = 0;  // of as many pictures as there are threads, the largest of a split
  std::string largest;      // "FILE (500 x 375 pixels)"
};

// What sets need whose pictures lie in files; nothing for others. A set of more than 10,000
// pictures is judged by so many of them, evenly spread. What cannot be read counts nothing: whoever
// decodes it says what is wrong.
DecodingNeed NeedOfDecoding(const Splits& splits, int workers);

// What reading silently makes of pictures that their owners may not expect, told from headers.

// A line for each kind of surprise in a split whose pictures lie in files: 16-bit gray that is cut
// at 255, other 16-bit values whose low byte is dropped, an EXIF orientation that is not applied,
// alpha that is dropped. A split of more than 10,000 pictures is judged by so many of them, evenly
// spread, and the line says so. What cannot be read counts nothing.
std::vector<std::string> WarningsOfPictures(const Dataset& dataset, const std::string& split);

}  // namespace ada::data
