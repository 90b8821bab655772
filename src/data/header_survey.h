// What the headers of pictures tell before any is decoded: how much memory decoding takes, and what
// may surprise the owner of the pictures.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace ada::data {

// The memory that decoding needs while each thread of a loader holds a picture, from headers. A run
// adds it to the memory that it asks for before it starts: the threads of the loader may each
// decode one of the largest pictures at the same moment.
struct DecodingNeed {
  std::uint64_t bytes = 0;  // of as many pictures as there are threads, the largest of a split
  std::string largest;      // "FILE (500 x 375 pixels)"
};

// The needs of sets whose pictures are in files; nothing for others. If a set has more than 10,000
// pictures, that many, evenly spread, are examined. Unreadable pictures are ignored: decoding them
// will report their fault.
DecodingNeed NeedOfDecoding(const Splits& splits, int workers);

// What reading silently changes in pictures, which their owners may not expect, from headers. A
// line for each kind of surprise in a split whose pictures lie in files: 16-bit gray that is cut at
// 255, other 16-bit values whose low byte is dropped, an EXIF orientation that is not applied,
// alpha that is dropped. A split of more than 10,000 pictures is judged by so many of them, evenly
// spread, and the line says so. What cannot be read counts nothing.
std::vector<std::string> WarningsOfPictures(const Dataset& dataset, const std::string& split);

}  // namespace ada::data
