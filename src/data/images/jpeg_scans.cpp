#include "data/images/jpeg_scans.h"

#include <algorithm>

namespace ada::data {
namespace {

// Reading a scan's header and tables takes as long as so many empty blocks.
constexpr std::uint64_t kBlocksOfHeader = 1000;

constexpr std::uint8_t kMark = 0xFF, kStuffed = 0x00, kTemporary = 0x01;
constexpr std::uint8_t kRestart0 = 0xD0, kRestart7 = 0xD7;
constexpr std::uint8_t kStart = 0xD8, kEnd = 0xD9, kScan = 0xDA;

// Whether no length follows a marker.
bool StandsAlone(std::uint8_t marker) {
  return marker == kTemporary || (marker >= kRestart0 && marker <= kStart);
}

// The code of the next marker from `at` on, which goes behind it; kEnd where there is none. Between
// two markers lie bytes of a scan, in which 0xFF is followed by 0.
std::uint8_t NextMarker(FileBytes file, std::size_t* at) {
  while (*at < file.size()) {
    const auto rest = file.subspan(*at);
    const auto mark = std::find(rest.begin(), rest.end(), kMark);
    const auto code = std::find_if(mark, rest.end(), [](std::uint8_t b) { return b != kMark; });
    if (code == rest.end()) break;
    *at += static_cast<std::size_t>(code - rest.begin()) + 1;
    if (*code != kStuffed) return *code;
  }
  return kEnd;
}

// `segment`: behind the length of a scan's header.
std::uint64_t BlocksOfScan(FileBytes segment, const std::vector<JpegComponent>& components) {
  std::uint64_t blocks = kBlocksOfHeader;
  const std::size_t count = segment.empty() ? 0 : segment[0];
  for (std::size_t i = 0; i < count && 1 + 2 * i < segment.size(); ++i) {
    const int id = segment[1 + 2 * i];
    const auto found = std::find_if(components.begin(), components.end(),
                                    [id](const JpegComponent& c) { return c.id == id; });
    if (found != components.end()) blocks += found->blocks;
  }
  return blocks;
}

}  // namespace

JpegWork WorkOfScans(FileBytes file, const std::vector<JpegComponent>& components) {
  JpegWork work;
  for (std::size_t at = 0; at < file.size();) {
    const std::uint8_t marker = NextMarker(file, &at);
    if (marker == kEnd) break;
    if (StandsAlone(marker)) continue;
    if (file.size() - at < 2) break;
    const std::size_t length = file[at] * std::size_t{256} + file[at + 1];
    if (length < 2 || length > file.size() - at) break;
    if (marker == kScan) {
      ++work.scans;
      work.blocks += BlocksOfScan(file.subspan(at + 2, length - 2), components);
    }
    at += length;
  }
  return work;
}

}  // namespace ada::data
