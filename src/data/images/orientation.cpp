// An orientation swaps the sides (5 to 8) and reads the stored rows, columns or both the other way.
#include <algorithm>
#include <cstddef>
#include <string_view>
#include <utility>

#include "data/images/picture.h"

namespace ada::data {
namespace {

constexpr std::uint32_t kOrientationTag = 0x0112, kShort = 3, kLong = 4;
constexpr int kFirst = 1, kLast = 8;
constexpr std::string_view kExifMark("Exif\0\0", 6);

// The stored rows, or columns, run the other way.
bool FlipsRows(int orientation) {
  return orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
}
bool FlipsColumns(int orientation) {
  return orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
}

// Numbers of a TIFF block; 0 beyond its end.
class TiffBytes {
 public:
  explicit TiffBytes(FileBytes bytes) : bytes_(bytes) {
    big_endian_ = bytes.size() > 1 && bytes[0] == 'M';
  }
  std::uint32_t Get(std::size_t at, std::size_t count) const {
    std::uint32_t value = 0;
    if (at > bytes_.size() || count > bytes_.size() - at) return 0;
    for (std::size_t i = 0; i < count; ++i)
      value |= std::uint32_t{bytes_[at + i]} << 8 * (big_endian_ ? count - 1 - i : i);
    return value;
  }

 private:
  FileBytes bytes_;
  bool big_endian_ = false;
};

}  // namespace

int OrientationOf(FileBytes tiff) {
  const TiffBytes bytes(tiff);
  constexpr std::uint32_t kMagic = 42;
  if (tiff.size() < 8 || (tiff[0] != 'I' && tiff[0] != 'M') || tiff[0] != tiff[1] ||
      bytes.Get(2, 2) != kMagic)
    return kFirst;
  const std::size_t directory = bytes.Get(4, 4);
  // Each entry of a directory has 12 bytes: tag, type, count, and a value of up to 4 bytes.
  const std::uint32_t entries = bytes.Get(directory, 2);
  for (std::uint32_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + std::size_t{12} * i;
    if (entry >= tiff.size()) break;
    if (bytes.Get(entry, 2) != kOrientationTag) continue;
    const std::uint32_t type = bytes.Get(entry + 2, 2);
    const std::uint32_t value = type == kShort  ? bytes.Get(entry + 8, 2)
                                : type == kLong ? bytes.Get(entry + 8, 4)
                                                : 0;
    return value >= kFirst && value <= kLast ? static_cast<int>(value) : kFirst;
  }
  return kFirst;
}

bool HasExifMark(FileBytes exif) {
  return exif.size() >= kExifMark.size() &&
         std::equal(kExifMark.begin(), kExifMark.end(), exif.begin());
}

int OrientationOfExif(FileBytes exif) {
  return OrientationOf(HasExifMark(exif) ? exif.subspan(kExifMark.size()) : exif);
}

PictureSize Turned(PictureSize stored, int orientation) {
  if (SwapsSides(orientation)) std::swap(stored.height, stored.width);
  return stored;
}

Picture Turned(Picture stored, int orientation) {
  if (orientation == 1) return stored;
  const PictureSize size = Turned(stored.size(), orientation);
  Picture turned{size.height, size.width, stored.channels, {}};
  turned.pixels.resize(stored.pixels.size());
  const bool swaps = SwapsSides(orientation);
  std::uint8_t* out = turned.pixels.data();
  for (int y = 0; y < size.height; ++y) {
    for (int x = 0; x < size.width; ++x) {
      // Each place of the result shows this place of the stored picture.
      const int r = swaps ? x : y, c = swaps ? y : x;
      const int row = FlipsRows(orientation) ? stored.height - 1 - r : r;
      const int column = FlipsColumns(orientation) ? stored.width - 1 - c : c;
      const std::ptrdiff_t at = (std::ptrdiff_t{row} * stored.width + column) * stored.channels;
      out = std::copy_n(stored.pixels.data() + at, stored.channels, out);
    }
  }
  return turned;
}

Box StoredBox(const Box& box, PictureSize stored, int orientation) {
  // This is the inverse of what becomes of pixels: sides are swapped back first, then flips undone
  // in stored coordinates.
  Box in = box;
  if (SwapsSides(orientation)) in = {box.left, box.top, box.width, box.height};
  if (FlipsRows(orientation)) in.top = stored.height - in.top - in.height;
  if (FlipsColumns(orientation)) in.left = stored.width - in.left - in.width;
  return in;
}

vision::Box Turned(const vision::Box& box, PictureSize stored, int orientation) {
  vision::Box turned = box;
  const auto flip = [](float* low, float* high, int size) {
    const float first = *low;
    *low = static_cast<float>(size) - *high;
    *high = static_cast<float>(size) - first;
  };
  if (FlipsRows(orientation)) flip(&turned.y0, &turned.y1, stored.height);
  if (FlipsColumns(orientation)) flip(&turned.x0, &turned.x1, stored.width);
  if (SwapsSides(orientation)) {
    std::swap(turned.y0, turned.x0);
    std::swap(turned.y1, turned.x1);
  }
  return turned;
}

}  // namespace ada::data
