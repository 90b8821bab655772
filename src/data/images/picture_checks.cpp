// Reads pieces of a file, not the file: a check of headers may go over millions of pictures.
#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "data/images/formats.h"
#include "data/images/picture.h"

namespace ada::data {
namespace {

// Where a JPEG's first scan begins, after the segments of its header; where it has no scan, where
// its end stands; the file's size where it ends before either.
std::uint64_t FirstScanOf(const OpenPicture& file) {
  constexpr std::uint64_t kLook = 64, kStart = 2;
  for (std::uint64_t at = kStart; at < file.size();) {
    const std::vector<std::uint8_t> piece = file.Piece(at, kLook);
    std::size_t in_piece = 0;
    const std::optional<std::uint8_t> marker = NextMarker(piece, &in_piece);
    if (!marker) {  // the piece may end in the middle of one
      at += std::max<std::uint64_t>(piece.size(), 2) - 1;
      continue;
    }
    at += in_piece;
    if (*marker == kJpegScan) return at;
    if (*marker == kJpegEnd) return at - 2;
    if (StandsAlone(*marker)) continue;
    const std::vector<std::uint8_t> length = file.Piece(at, 2);
    if (length.size() < 2) break;
    at += length[0] * std::uint64_t{256} + length[1];
  }
  return file.size();
}

// Searches from the end, where the marker of the end stands in a whole file, back to the first
// scan: the segments before it are walked over, as a thumbnail in them has an end of its own.
bool HasJpegEnd(const OpenPicture& file) {
  constexpr std::uint64_t kPiece = 64 << 10;
  const std::uint64_t first = FirstScanOf(file);
  for (std::uint64_t end = file.size(); end > first;) {
    const std::uint64_t begin = std::max(first, end - std::min(end, kPiece));
    if (HasEndMarker(file.Piece(begin, end - begin + 1))) return true;
    end = begin;
  }
  return false;
}

// A chunk of pixels, or one in front of them, that reaches beyond the file.
bool EndsWithinChunk(const OpenPicture& file) {
  constexpr std::uint64_t kSignature = 8, kHead = 8, kChecksum = 4;
  // Each chunk says its length in big-endian order before its name (PNG, section 5.3).
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
  // RIFF counts the bytes after its own first eight, in little-endian order.
  for (int i = 3; i >= 0; --i) length = length << 8 | begin[static_cast<std::size_t>(4 + i)];
  return length + 8 > file.size();
}

namespace {

constexpr auto kSurprises = std::to_array<Surprise>({
    {IsClipped, "picture is 16-bit grey", "pictures are 16-bit grey",
     "values above 255 become white, as PIL does; data.sixteen_bit: scale divides them by 257"},
    {IsHighByteTaken, "picture is 16-bit", "pictures are 16-bit",
     "the high byte of each value is taken, as PIL does; data.sixteen_bit: scale divides values by "
     "257 and rounds"},
    {IsLeftUnturned, "picture carries an EXIF orientation", "pictures carry an EXIF orientation",
     "it is not applied; data.exif: apply turns pictures as viewers show them"},
    {[](const PictureTraits& traits, const PictureRules&) { return traits.alpha; },
     "picture has alpha", "pictures have alpha",
     "it is dropped, and what it hides is seen; paint pictures on a background if that matters"},
});

}  // namespace

std::span<const Surprise> Surprises() { return kSurprises; }

std::string SurpriseText(const Surprise& surprise, std::int64_t count, const std::string& first,
                         const std::string& of) {
  const bool one = count == 1;
  return std::to_string(count) + of + " " + (one ? surprise.one : surprise.many) + " (" +
         (one ? "" : "the first: ") + first + "): " + surprise.what;
}

std::vector<std::string> SurprisesOf(const std::string& path, const PictureRules& rules) {
  const PictureTraits traits = NeedsOfPictureFile(path).traits;
  std::vector<std::string> lines;
  for (const Surprise& surprise : kSurprises)
    if (surprise.holds(traits, rules))
      lines.push_back(std::string(surprise.one) + ": " + surprise.what);
  return lines;
}

}  // namespace ada::data
