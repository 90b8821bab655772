// How much work the scans of a JPEG file make, told from its markers without decoding anything:
// each scan of a progressive file goes over all blocks of its components, however few bytes it has.
#pragma once
#include <cstdint>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

struct JpegComponent {
  int id = 0;
  std::uint64_t blocks = 0;  // of 8 x 8 values
};

struct JpegWork {
  std::int64_t scans = 0;
  std::uint64_t blocks = 0;  // that all scans together go over
};

// The work of a file that begins as JPEG, up to its end or to where it makes no sense; the decoder
// says what is wrong there.
JpegWork WorkOfScans(FileBytes file, const std::vector<JpegComponent>& components);

// More than that is made to take time, about two seconds: the largest picture has fewer in ten
// scans of all of its components.
inline constexpr std::uint64_t kMostBlocksOfScans = 100'000'000;

}  // namespace ada::data
