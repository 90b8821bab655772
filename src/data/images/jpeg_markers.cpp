// Markers as ITU-T T.81, section B.1.1.2, has them: 0xFF, any number of times, and a code other
// than 0.
#include "data/images/jpeg_markers.h"

#include <algorithm>

namespace ada::data {
namespace {

constexpr std::uint8_t kMark = 0xFF, kStuffed = 0x00, kTemporary = 0x01;
constexpr std::uint8_t kRestart0 = 0xD0, kStart = 0xD8;

}  // namespace

bool StandsAlone(std::uint8_t marker) {
  return marker == kTemporary || (marker >= kRestart0 && marker <= kStart);
}

std::optional<std::uint8_t> NextMarker(FileBytes file, std::size_t* at) {
  for (auto rest = file.subspan(*at);;) {
    const auto mark = std::find(rest.begin(), rest.end(), kMark);
    // Fill bytes of 0xFF may stand before a code.
    const auto code = std::find_if(mark, rest.end(), [](std::uint8_t b) { return b != kMark; });
    if (code == rest.end()) return std::nullopt;
    rest = rest.subspan(static_cast<std::size_t>(code - rest.begin()) + 1);
    if (*code == kStuffed) continue;
    *at = file.size() - rest.size();
    return *code;
  }
}

bool HasEndMarker(FileBytes scans) {
  constexpr std::uint8_t kEnd[] = {kMark, kJpegEnd};
  return std::find_end(scans.begin(), scans.end(), std::begin(kEnd), std::end(kEnd)) != scans.end();
}

}  // namespace ada::data
