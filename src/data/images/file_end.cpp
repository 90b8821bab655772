#include "data/images/file_end.h"

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "data/images/formats.h"

namespace ada::data {
namespace {

// Searches from the end, where the marker of the end stands in a whole file.
bool HasJpegEnd(const OpenPicture& file) {
  constexpr std::uint64_t kPiece = 64 << 10;
  constexpr std::uint8_t kEnd[] = {0xFF, 0xD9};
  for (std::uint64_t end = file.size(); end > 0;) {
    const std::uint64_t begin = end > kPiece ? end - kPiece : 0;
    const std::vector<std::uint8_t> piece = file.Piece(begin, end - begin + 1);
    if (std::search(piece.begin(), piece.end(), std::begin(kEnd), std::end(kEnd)) != piece.end())
      return true;
    end = begin;
  }
  return false;
}

// A chunk of pixels, or one in front of them, that reaches beyond the file.
bool EndsWithinChunk(const OpenPicture& file) {
  constexpr std::uint64_t kSignature = 8, kHead = 8, kChecksum = 4;
  for (std::uint64_t at = kSignature; at < file.size();) {
    const std::vector<std::uint8_t> head = file.Piece(at, kHead);
    const std::string_view name(reinterpret_cast<const char*>(head.data()) + 4,
                                head.size() == kHead ? 4 : 0);
    if (name.empty()) return false;
    if (name == "IEND") return false;
    std::uint64_t length = 0;
    for (int i = 0; i < 4; ++i) length = length << 8 | head[static_cast<std::size_t>(i)];
    const std::uint64_t next = at + kHead + length + kChecksum;
    if (next > file.size()) return name == "IDAT" || name == "PLTE" || name == "IHDR";
    at = next;
  }
  return false;
}

}  // namespace

bool IsCutOff(const std::string& path) {
  const OpenPicture file(path);
  constexpr std::uint64_t kBegin = 16;
  const std::vector<std::uint8_t> begin = file.Piece(0, kBegin);
  if (IsJpeg(begin)) return !HasJpegEnd(file);
  if (IsPng(begin)) return EndsWithinChunk(file);
  if (!IsWebp(begin)) return false;
  std::uint64_t length = 0;
  for (int i = 3; i >= 0; --i) length = length << 8 | begin[static_cast<std::size_t>(4 + i)];
  return length + 8 > file.size();
}

}  // namespace ada::data
