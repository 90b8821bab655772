// The markers of a JPEG file: where its segments begin, without decoding anything.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

// Codes of markers, the byte after 0xFF.
inline constexpr std::uint8_t kJpegEnd = 0xD9, kJpegScan = 0xDA;

// Returns the code of the next marker from `at` on, which goes to the byte after the code; nothing
// where there is none: then `at` stays. Between two markers lie bytes of a scan, in which 0xFF is
// followed by 0.
std::optional<std::uint8_t> NextMarker(FileBytes file, std::size_t* at);

// Returns whether no length and no segment follow a marker.
bool StandsAlone(std::uint8_t marker);

// Returns whether the marker of the end stands anywhere in `scans`, which begin at the first scan:
// before it a thumbnail in EXIF has such a marker, too.
bool HasEndMarker(FileBytes scans);

struct JpegComponent {
  int id = 0;
  std::uint64_t blocks = 0;  // of 8 x 8 values
};

// How much work the scans of a JPEG file make: each scan of a progressive file goes over all blocks
// of its components, however few bytes it has.
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
