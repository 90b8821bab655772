// Label images that are PNG files, decoded when they are asked for.
#pragma once
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "data/labels.h"
#include "data/picture_files.h"
#include "data/sample_sources.h"
#include "data/settings.h"

namespace ada::data {

// The classes, and what labels in files mean.
struct PixelClasses {
  std::vector<std::string> names;
  int ignored = -1;         // the label of pixels without a class; -1: there is none
  LabelValues values = {};  // none: a label is the number of its class
};

// Keeps names, tables from labels in files to classes, and the headers that were read.
class LabelFiles final : public LabelImages {
 public:
  // pictures: those that the labels are of, in the same order; it must outlive this. A label image
  // that fits its picture as it is stored, and not as the picture's rules turn it, is turned too.
  LabelFiles(NameList files, PixelClasses classes, std::shared_ptr<const ImageStore> pictures);

  std::string NameOf(std::int64_t image) const override { return std::string(files_[image]); }
  Picture Read(std::int64_t image) const override;
  PictureSize SizeOf(std::int64_t image) const override;
  int ignored() const override { return classes_.ignored; }
  std::uint64_t DecodingBytesOf(std::int64_t image) const override { return HeaderOf(image).bytes; }

 private:
  PictureNeeds HeaderOf(std::int64_t image) const { return headers_.Of(image, NameOf(image), {}); }
  // DataError where a picture of these traits has no labels.
  void RequireLabels(std::int64_t image, const PictureTraits& traits) const;
  Picture ReadValues(std::int64_t image) const;
  Picture ReadColors(std::int64_t image) const;
  // The orientation that the label image has to take on; 1: it stays.
  int OrientationFor(std::int64_t image, PictureSize labels) const;
  [[noreturn]] void FailAt(std::int64_t image, const Picture& picture, std::size_t pixel,
                           const std::string& label) const;

  NameList files_;
  PictureHeaders headers_;  // as they are stored
  PixelClasses classes_;
  std::shared_ptr<const ImageStore> pictures_;
  std::array<std::uint8_t, 256> class_of_{};  // of a label in a file; kIgnoredPixel also: none
  std::array<bool, 256> is_known_{};
  std::unordered_map<std::uint32_t, std::uint8_t> class_of_color_;
};

}  // namespace ada::data
