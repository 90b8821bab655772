// Markers as ITU-T T.81, section B.1.1.2, has them: 0xFF, any number of times, and a code other
// than 0.
#include <algorithm>
#include <optional>

#include "data/images/formats.h"

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

namespace {

// Reading a scan's header and tables takes as long as so many empty blocks.
constexpr std::uint64_t kBlocksOfHeader = 1000;

// Adds up the blocks of a scan by the component list of its header (ITU-T T.81, section B.2.3), of
// which `segment` holds what follows the length.
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
    const std::optional<std::uint8_t> marker = NextMarker(file, &at);
    if (!marker || *marker == kJpegEnd) break;
    if (StandsAlone(*marker)) continue;
    if (file.size() - at < 2) break;
    // The length counts its own two bytes.
    const std::size_t length = file[at] * std::size_t{256} + file[at + 1];
    if (length < 2 || length > file.size() - at) break;
    if (*marker == kJpegScan) {
      ++work.scans;
      work.blocks += BlocksOfScan(file.subspan(at + 2, length - 2), components);
    }
    at += length;
  }
  return work;
}

}  // namespace ada::data
