// The markers of a JPEG file: where its segments begin, without decoding anything.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>

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

}  // namespace ada::data
