// What a file that is no picture of a known kind looks like, by its first bytes.
#include <algorithm>
#include <array>
#include <string_view>

#include "data/images/formats.h"
#include "io/shown_text.h"

namespace ada::data {
namespace {

// `bytes` at byte `at` of a file say that it is `what`. The first that fits counts.
struct Beginning {
  std::size_t at;
  std::string_view bytes, what;
};

using std::string_view_literals::operator""sv;
constexpr auto kBeginnings = std::to_array<Beginning>({
    {0, "GIF8"sv, "a GIF picture"},
    {0, "BM"sv, "a BMP picture"},
    {8, "WEBP"sv, "a WebP picture"},
    {0, "II*\0"sv, "a TIFF picture"},
    {0, "MM\0*"sv, "a TIFF picture"},
    {4, "ftypheic"sv, "a HEIC picture"},
    {4, "ftypmif1"sv, "a HEIC picture"},
    {4, "ftypavif"sv, "an AVIF picture"},
    {4, "ftyp"sv, "a video"},
    {4, "jP  "sv, "a JPEG 2000 picture"},
    {0, "\xff\x0a"sv, "a JPEG XL picture"},
    {0, "8BPS"sv, "a Photoshop file"},
    {0, "%PDF"sv, "a PDF"},
    {0, "\x1f\x8b"sv, "gzip data"},
    {0, "PK\3\4"sv, "a ZIP archive"},
});

// Whether the beginning is UTF-8 without control characters but blanks.
bool IsText(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const bool blank = byte == '\n' || byte == '\r' || byte == '\t';
    const std::size_t length = CharacterLength(text, at);
    // A character may be cut off by the end of the piece.
    if (length == 0) return at > 0 && text.size() - at < 4 && byte >= 0x80;
    if (byte < 0x20 && !blank) return false;
    at += length;
  }
  return true;
}

}  // namespace

std::string WhatItLooksLike(FileBytes file) {
  if (file.empty()) return "is empty";
  const std::string_view begin(reinterpret_cast<const char*>(file.data()),
                               std::min<std::size_t>(file.size(), 256));
  for (const Beginning& known : kBeginnings) {
    if (begin.size() >= known.at && begin.substr(known.at).starts_with(known.bytes))
      return "is " + std::string(known.what);
  }
  if (std::all_of(begin.begin(), begin.end(), [](char byte) { return byte == 0; }))
    return "begins with zero bytes";
  const std::string_view line = begin.substr(0, begin.find_first_of("\r\n"));
  if (IsText(begin)) return "is text, which begins with " + Shown(line);
  return "is no picture of a known kind (it begins with " + Shown(begin.substr(0, 8)) + ")";
}

}  // namespace ada::data
