#include "data/segmentation/label_files.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "data/images/label_png.h"

namespace ada::data {

LabelFiles::LabelFiles(NameList files, int classes, int ignored)
    : files_(std::move(files)), classes_(classes), ignored_(ignored) {
  ADA_CHECK(classes <= kMostPixelClasses && ignored < 256);
  class_of_.fill(kIgnoredPixel);
  for (int label = 0; label < classes; ++label) {
    class_of_[static_cast<std::size_t>(label)] = static_cast<std::uint8_t>(label);
    is_known_[static_cast<std::size_t>(label)] = true;
  }
  if (ignored < 0) return;
  class_of_[static_cast<std::size_t>(ignored)] = kIgnoredPixel;
  is_known_[static_cast<std::size_t>(ignored)] = true;
}

Picture LabelFiles::Read(std::int64_t image) const {
  Picture picture = ReadLabelPng(NameOf(image));
  bool all_known = true;
  for (const std::uint8_t label : picture.pixels) all_known &= is_known_[label];
  if (!all_known) {
    const auto unknown = std::find_if(picture.pixels.begin(), picture.pixels.end(),
                                      [this](std::uint8_t label) { return !is_known_[label]; });
    FailAt(image, picture, static_cast<std::size_t>(unknown - picture.pixels.begin()));
  }
  for (std::uint8_t& label : picture.pixels) label = class_of_[label];
  return picture;
}

void LabelFiles::FailAt(std::int64_t image, const Picture& picture, std::size_t pixel) const {
  const std::size_t width = static_cast<std::size_t>(picture.width);
  throw DataError(NameOf(image) + ": row " + std::to_string(pixel / width) + ", column " +
                  std::to_string(pixel % width) + ": label " +
                  std::to_string(picture.pixels[pixel]) + " is none of the " +
                  std::to_string(classes_) + " classes (0 to " + std::to_string(classes_ - 1) +
                  ")" + (ignored_ < 0 ? "" : " nor the ignored label " + std::to_string(ignored_)) +
                  "; name all classes in data.class_names, or say data.ignored_label");
}

PictureSize LabelFiles::SizeOf(std::int64_t image) const {
  return SizeInPictureFile(NameOf(image));
}

}  // namespace ada::data
