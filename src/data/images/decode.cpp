// Detects formats and applies PictureRules; each format's own reader knows neither EXIF rules nor
// other formats. A file of no known kind is named by its first bytes.
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <new>
#include <optional>
#include <string_view>

#include "data/images/formats.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/data_files.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "io/system_call.h"
#include "io/text.h"

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

namespace {

constexpr std::uint64_t kMaxFileBytes = std::uint64_t{2} << 30;
constexpr std::uint64_t kBeginning = 16 << 10;  // bytes of a file: most headers end there

// Each format that can be read is a row of these. `is` looks only at the first bytes.
struct PictureFormat {
  bool (*is)(FileBytes file);
  PictureHeader (*header)(FileBytes file, const std::string& path);
  Picture (*decode)(FileBytes file, const std::string& path, const Box* box,
                    SixteenBit sixteen_bit);
};
// Decodes a format whose values have 8 bits.
template <Picture (*decode)(FileBytes file, const std::string& path, const Box* box)>
Picture DecodeBytes(FileBytes file, const std::string& path, const Box* box, SixteenBit) {
  return decode(file, path, box);
}
constexpr PictureFormat kPictureFormats[] = {{IsJpeg, JpegHeader, DecodeBytes<DecodeJpeg>},
                                             {IsPng, PngHeader, DecodePng},
                                             {IsWebp, WebpHeader, DecodeBytes<DecodeWebp>}};

const PictureFormat& FormatOf(FileBytes file, const std::string& path) {
  for (const PictureFormat& format : kPictureFormats) {
    if (format.is(file)) return format;
  }
  throw DataError(path + ": " + WhatItLooksLike(file) + "; expected a JPEG, PNG or WebP picture");
}

bool IsPicture(FileBytes file) {
  return std::any_of(std::begin(kPictureFormats), std::end(kPictureFormats),
                     [file](const PictureFormat& format) { return format.is(file); });
}

}  // namespace

OpenPicture::OpenPicture(const std::string& path) : path_(path), fd_(OpenDataFile(path)) {
  size_ = static_cast<std::uint64_t>(SizeOfFile(fd_));
  if (size_ <= kMaxFileBytes) return;
  CloseFile(fd_);
  throw DataError(TooLargeText(path, size_, kMaxFileBytes));
}

OpenPicture::~OpenPicture() { CloseFile(fd_); }

std::vector<std::uint8_t> OpenPicture::Piece(std::uint64_t at, std::uint64_t count) const {
  std::vector<std::uint8_t> piece(at >= size_ ? 0 : std::min(count, size_ - at));
  piece.resize(ReadAt(fd_, at, piece.data(), piece.size()));
  // ReadAt leaves errno at 0 where the file simply ends: then the piece is shorter than asked for.
  const int error = errno;
  if (error == 0) return piece;
  ThrowUnread<DataError>(path_ + ": cannot be read: " + std::strerror(error), error);
}

void CheckSize(const std::string& path, std::int64_t height, std::int64_t width) {
  const std::string claim = path + ": its header claims " + std::to_string(width) + " x " +
                            std::to_string(height) + " pixels";
  if (height < 1 || width < 1) throw DataError(claim + ": the picture is damaged");
  if (height > kMaxPixels / width) {
    throw DataError(claim + "; expected at most " + std::to_string(kMaxPixels) +
                    ": make the picture smaller or leave it out");
  }
}

Picture RoomFor(const std::string& path, PictureSize size, int channels) {
  Picture picture{size.height, size.width, channels, {}};
  const std::size_t bytes = static_cast<std::size_t>(channels) *
                            static_cast<std::size_t>(size.height) *
                            static_cast<std::size_t>(size.width);
  try {
    picture.pixels.resize(bytes);
  } catch (const std::bad_alloc&) {
    throw NoMemory(path, "decode its " + HumanBytes(bytes) + " of pixels");
  }
  return picture;
}

namespace {

// `box`: of the picture as it becomes by the rules; null: all of it.
Picture Decode(FileBytes file, const std::string& path, const Box* box, const PictureRules& rules) {
  return WithMemory(path, kDecoding, [&] {
    const PictureFormat& format = FormatOf(file, path);
    if (!rules.applies_exif) return format.decode(file, path, box, rules.sixteen_bit);
    // A turned picture is decoded as it is stored, then turned: so the box has to be turned back
    // first.
    const PictureHeader header = format.header(file, path);
    const int orientation = header.traits.orientation;
    std::optional<Box> stored;
    if (box != nullptr) stored = StoredBox(*box, header.size, orientation);
    return Turned(format.decode(file, path, stored ? &*stored : nullptr, rules.sixteen_bit),
                  orientation);
  });
}

PictureSize SizeBy(const PictureRules& rules, const PictureHeader& header) {
  return rules.applies_exif ? Turned(header.size, header.traits.orientation) : header.size;
}

}  // namespace

Picture DecodePicture(FileBytes file, const std::string& path, const PictureRules& rules) {
  return Decode(file, path, nullptr, rules);
}

Picture DecodePicture(FileBytes file, const std::string& path, const Box& box,
                      const PictureRules& rules) {
  return Decode(file, path, &box, rules);
}

PictureSize SizeOfPicture(FileBytes file, const std::string& path, const PictureRules& rules) {
  return SizeBy(rules, FormatOf(file, path).header(file, path));
}

std::string KindOfPicture(FileBytes file, const std::string& path) {
  const PictureHeader header = FormatOf(file, path).header(file, path);
  const int orientation = header.traits.orientation;
  return header.kind +
         (orientation == 1 ? "" : ", EXIF orientation " + std::to_string(orientation));
}

std::vector<std::uint8_t> ReadPictureFile(const std::string& path) {
  return WithMemory(path, "read it", [&] {
    const OpenPicture file(path);
    std::vector<std::uint8_t> beginning = file.Piece(0, kBeginning);
    return IsPicture(beginning) ? file.Piece(0, file.size()) : beginning;
  });
}

PictureNeeds NeedsOfPictureFile(const std::string& path, const PictureRules& rules) {
  const OpenPicture file(path);
  const auto needs = [&](FileBytes bytes) {
    const PictureHeader header = FormatOf(bytes, path).header(bytes, path);
    const PictureSize size = SizeBy(rules, header);
    const bool turned = rules.applies_exif && header.traits.orientation != 1;
    const std::uint64_t pixels =  // a second copy while it is turned
        turned
            ? 3 * static_cast<std::uint64_t>(size.height) * static_cast<std::uint64_t>(size.width)
            : 0;
    return PictureNeeds{size, header.size, header.decoding_bytes + pixels + file.size(),
                        header.traits};
  };
  // Some headers are longer (JPEG with large EXIF blocks, WebP, whose EXIF stands at its end):
  // where the beginning does not do, the whole file is read.
  const std::vector<std::uint8_t> beginning = file.Piece(0, kBeginning);
  try {
    return needs(beginning);
  } catch (const DataError&) {
    if (!IsPicture(beginning)) throw;
    return needs(file.Piece(0, file.size()));  // the header may end further on
  }
}

PictureSize SizeInPictureFile(const std::string& path, const PictureRules& rules) {
  return NeedsOfPictureFile(path, rules).size;
}

Picture ReadPicture(const std::string& path, const PictureRules& rules) {
  return DecodePicture(ReadPictureFile(path), path, rules);
}

}  // namespace ada::data
