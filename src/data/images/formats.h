// The functions of each kind of file that picture.cpp uses, and the markers of a JPEG file. They
// get files that begin like their kind; errors: see picture.h.
#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/images/picture.h"

namespace ada::data {

// What memory is needed for, in messages.
inline constexpr char kDecoding[] = "decode it";

// A picture's file that is open to be read. Errors are those of ReadPictureFile.
class OpenPicture {
 public:
  explicit OpenPicture(const std::string& path);  // `path` outlives it
  ~OpenPicture();
  OpenPicture(const OpenPicture&) = delete;
  OpenPicture& operator=(const OpenPicture&) = delete;

  std::uint64_t size() const { return size_; }
  // At most `count` bytes from `at` on.
  std::vector<std::uint8_t> Piece(std::uint64_t at, std::uint64_t count) const;

 private:
  const std::string& path_;
  int fd_;
  std::uint64_t size_ = 0;
};

// Each format's reader makes it from the first bytes of a file; picture.cpp applies PictureRules to
// it.
struct PictureHeader {
  PictureSize size;
  std::string kind;
  PictureTraits traits;
  // Memory while the whole picture is decoded: its pixels, and what the library holds.
  std::uint64_t decoding_bytes = 0;
};

bool IsJpeg(FileBytes file);
PictureHeader JpegHeader(FileBytes file, const std::string& path);
// `box`: nullptr for all of the picture, else within it.
Picture DecodeJpeg(FileBytes file, const std::string& path, const Box* box);

bool IsPng(FileBytes file);
PictureHeader PngHeader(FileBytes file, const std::string& path);
Picture DecodePng(FileBytes file, const std::string& path, const Box* box, SixteenBit sixteen_bit);

bool IsWebp(FileBytes file);
PictureHeader WebpHeader(FileBytes file, const std::string& path);
Picture DecodeWebp(FileBytes file, const std::string& path, const Box* box);

// "is a GIF picture", "is text: \"hello\"", "is empty": what a file is that begins with neither.
std::string WhatItLooksLike(FileBytes file);

// Throws DataError where a header claims no pixels or more than kMaxPixels.
void CheckSize(const std::string& path, std::int64_t height, std::int64_t width);

// Room for the pixels of `size`; DeviceError where the machine has none.
Picture RoomFor(const std::string& path, PictureSize size, int channels = 3);

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
