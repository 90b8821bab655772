// Adds up blocks by the component lists of the scans' headers (ITU-T T.81, section B.2.3).
#include "data/images/jpeg_scans.h"

#include <algorithm>
#include <optional>

#include "data/images/jpeg_markers.h"

namespace ada::data {
namespace {

// Reading a scan's header and tables takes as long as so many empty blocks.
constexpr std::uint64_t kBlocksOfHeader = 1000;

// `segment`: after the length of a scan's header.
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
