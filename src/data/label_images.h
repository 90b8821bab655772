// The labels of segmentation: a label image for each image of a data set.
#pragma once
#include <cstdint>
#include <string>

#include "data/images/picture.h"

namespace ada::data {

// What a pixel without a class has as its label in a label image that was read. In a batch it is
// kNoLabel.
inline constexpr std::uint8_t kIgnoredPixel = 255;
inline constexpr std::int32_t kNoLabel = -1;
// The most classes of a set with label images.
inline constexpr int kMostPixelClasses = 255;

// Gives the label images of a data set one by one, when they are asked for; all copies of the
// Dataset share it. LabelFiles (segmentation/label_files.h) implements it. Safe from several
// threads. `image` counts the images of the files, as Dataset::NumberInFiles says.
class LabelImages {
 public:
  virtual ~LabelImages() = default;
  virtual std::string NameOf(std::int64_t image) const = 0;  // in messages: its file
  // One channel, in the file's own size: a class below the data set's `classes`, or kIgnoredPixel.
  // DataError naming the file: it cannot be read, is no 8-bit gray or palette PNG, or has a label
  // that is none of the classes (with the first such pixel).
  virtual Picture Read(std::int64_t image) const = 0;
  // The size alone, from the file's header, which is read once. DataError as above.
  virtual PictureSize SizeOf(std::int64_t image) const = 0;
  // Memory while the label image is decoded, from its header.
  virtual std::uint64_t DecodingBytesOf(std::int64_t image) const = 0;
};

}  // namespace ada::data
