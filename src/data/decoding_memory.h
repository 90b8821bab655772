// What decoding takes of memory while a loader's threads each hold a picture, told from headers.
#pragma once
#include <cstdint>
#include <string>

#include "data/dataset.h"

namespace ada::data {

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

}  // namespace ada::data
