// Pictures of files: JPEG, PNG and WebP, told apart by their content and not by their names,
// decoded to the RGB bytes that PIL's Image.open(file).convert("RGB") gives (so torchvision's
// ImageFolder): alpha dropped, 16-bit gray cut at 255 (other 16-bit PNG: the high byte), CMYK and
// YCCK JPEG taken as Adobe writes them (inverted), an orientation in EXIF not applied, JPEG by the
// accurate integer DCT with smooth upsampling of color. PictureRules ask for something else.
//
// Every function that takes a file's bytes throws DataError naming `path` for what is none of these
// (with what it looks like), for damaged and truncated data, and, before memory is taken, for
// headers that claim more than kMaxPixels; DeviceError naming it where the machine has no memory.
// Unlike PIL, which paints gray where the data of a JPEG makes no sense, such damage is an error
// here. All are safe from several threads at a time.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "vision/box.h"

namespace ada::data {

// More than that PIL refuses as a decompression bomb, too.
inline constexpr std::int64_t kMaxPixels = 178'956'970;

struct PictureSize {
  int height = 0, width = 0;
  friend bool operator==(const PictureSize&, const PictureSize&) = default;
};

// "500 x 375 pixels": columns and rows, as every message says it.
inline std::string SizeText(PictureSize size) {
  return std::to_string(size.width) + " x " + std::to_string(size.height) + " pixels";
}

struct Picture {
  int height = 0, width = 0, channels = 0;
  std::vector<std::uint8_t> pixels;  // [height, width, channels]
  PictureSize size() const { return {height, width}; }
};

// A part of a picture, in pixels from its upper left corner.
struct Box {
  int top = 0, left = 0, height = 0, width = 0;
  friend bool operator==(const Box&, const Box&) = default;
};
inline Box WholeOf(PictureSize size) { return {0, 0, size.height, size.width}; }

// What becomes of 16-bit values v: as PIL has it (gray: min(v, 255); colors: v / 256, rounded
// down), or v / 257, rounded to nearest.
enum class SixteenBit : std::uint8_t { kClip, kScale };
// Changes to a file's pixels beyond what its format specifies.
struct PictureRules {
  bool applies_exif = false;  // turned as its orientation in EXIF says; sizes and boxes are so too
  SixteenBit sixteen_bit = SixteenBit::kClip;
};

// Properties of the values, from the header.
struct PictureTraits {
  int bits = 8;         // of a value
  int orientation = 1;  // in EXIF, 1 to 8; 1: as it is stored
  bool gray = false, palette = false, alpha = false;
  bool clipped = false;  // 16-bit gray of which PIL's conversion makes all above 255 white
  bool png = false;
  bool may_be_labels = false;  // a PNG whose values are numbers: a palette, gray of at most 8 bits
};

// A file's bytes.
using FileBytes = std::span<const std::uint8_t>;

Picture DecodePicture(FileBytes file, const std::string& path, const PictureRules& rules = {});
// Does the same for a part of the picture, which must lie within it (InternalError): the same
// bytes, in less time. Truncation is found wherever the box is, other damage beside or below the
// box may not be.
Picture DecodePicture(FileBytes file, const std::string& path, const Box& box,
                      const PictureRules& rules = {});

// These read only the header. The kind is "JPEG, 3 components, progressive", "PNG, 8-bit palette"
// or "WebP, lossy"; ", EXIF orientation 6" follows where it is not 1.
PictureSize SizeOfPicture(FileBytes file, const std::string& path, const PictureRules& rules = {});
std::string KindOfPicture(FileBytes file, const std::string& path);

// The file's bytes; if it is not a picture, only its beginning, which shows what it is. Errors of
// io/data_files.h; DataError if it is larger than 2 GiB.
std::vector<std::uint8_t> ReadPictureFile(const std::string& path);
Picture ReadPicture(const std::string& path, const PictureRules& rules = {});

// The properties of a picture from its header, for which the file's beginning is often enough.
struct PictureNeeds {
  PictureSize size, stored;  // as the rules have it, and as it stands in the file
  std::uint64_t bytes = 0;   // of memory while the whole picture is decoded, the file's among them
  PictureTraits traits = {};
};
PictureNeeds NeedsOfPictureFile(const std::string& path, const PictureRules& rules = {});
PictureSize SizeInPictureFile(const std::string& path, const PictureRules& rules = {});

// Writes a PNG of 1 (gray) or 3 (RGB) channels as io/file.h's AtomicFile writes; OutputError with
// the reason.
void WritePng(const std::string& path, const Picture& picture);

// Does the same for numbers that stand for colors: a PNG with a palette, whose values are those of
// the picture of 1 channel. At most 256 colors.
struct PaletteColor {
  std::uint8_t r = 0, g = 0, b = 0;
};
void WritePalettePng(const std::string& path, const Picture& picture,
                     const std::vector<PaletteColor>& colors);

// Label images are PNG files whose values are numbers of classes, not colors. These return the
// values of a gray PNG of up to 8 bits, or the indices of a palette PNG (not its colors), as they
// are: one channel. DataError naming `path`: what the functions above throw, and every other kind
// of picture.
Picture DecodeLabelPng(FileBytes file, const std::string& path);
Picture ReadLabelPng(const std::string& path);

// The colors of a PNG of any kind, RGB: of a palette its colors. DataError as above, and for
// pictures of other formats, most of which change colors.
Picture ReadColorPng(const std::string& path);

// The orientation that EXIF gives a picture: where it is found, and what it makes of sizes, boxes
// and pixels. Orientation 1 is the picture as it is stored; 6 is turned by 90 degrees to the right
// (Exif 2.32, tag 0x0112).
inline bool SwapsSides(int orientation) { return orientation >= 5; }

// The orientation in the TIFF block of an EXIF block; 1 if it has none, or an invalid
// one.
int OrientationOf(FileBytes tiff);
// Whether EXIF data begins with "Exif\0\0", as it does in JPEG.
bool HasExifMark(FileBytes exif);
// The same as OrientationOf, of EXIF data with that mark or without.
int OrientationOfExif(FileBytes exif);

PictureSize Turned(PictureSize stored, int orientation);
Picture Turned(Picture stored, int orientation);
// The part of the stored picture, which has the size `stored`, that becomes `box`.
Box StoredBox(const Box& box, PictureSize stored, int orientation);
// What a box on the stored picture becomes.
vision::Box Turned(const vision::Box& box, PictureSize stored, int orientation);

// --- Checks that need no pixels ---

// Whether a picture's file lacks the end that its format wants, told without decoding it. True: a
// JPEG without its end marker, a PNG that ends within its pixel chunks, a WebP shorter than its
// header says: decoding each of these is an error. False: none of these, or not such a picture.
// Errors are those of ReadPictureFile.
bool IsCutOff(const std::string& path);

// 16-bit gray whose values above 255 become white.
inline bool IsClipped(const PictureTraits& traits, const PictureRules& rules) {
  return traits.clipped && rules.sixteen_bit == SixteenBit::kClip;
}
// Other 16-bit values, of which the low byte is dropped.
inline bool IsHighByteTaken(const PictureTraits& traits, const PictureRules& rules) {
  return traits.bits == 16 && !traits.clipped && rules.sixteen_bit == SixteenBit::kClip;
}
// An EXIF orientation that is not applied.
inline bool IsLeftUnturned(const PictureTraits& traits, const PictureRules& rules) {
  return traits.orientation != 1 && !rules.applies_exif;
}

// `holds` tells for which pictures it is true; `one` and `many` start its line after the count, and
// `what` explains what happens to such pictures and how to change that.
struct Surprise {
  bool (*holds)(const PictureTraits& traits, const PictureRules& rules);
  const char *one, *many, *what;
};
// IsClipped, IsHighByteTaken, IsLeftUnturned, and alpha that is dropped.
std::span<const Surprise> Surprises();

// "3 pictures have alpha (the first: a.png): it is dropped, ...". `of`: follows the count.
std::string SurpriseText(const Surprise& surprise, std::int64_t count, const std::string& first,
                         const std::string& of = "");

// Those of one picture's file, each as a line without its name. DataError where it cannot be read.
std::vector<std::string> SurprisesOf(const std::string& path, const PictureRules& rules);

}  // namespace ada::data
