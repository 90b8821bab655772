// Label images that are PNG files, decoded when they are asked for.
#pragma once
#include <array>
#include <cstdint>
#include <string>

#include "data/label_images.h"
#include "data/picture_files.h"

namespace ada::data {

class LabelFiles final : public LabelImages {
 public:
  // `ignored`: the label of pixels without a class, which need not be above the classes; -1: none.
  LabelFiles(NameList files, int classes, int ignored);

  std::string NameOf(std::int64_t image) const override { return std::string(files_[image]); }
  Picture Read(std::int64_t image) const override;
  PictureSize SizeOf(std::int64_t image) const override;

 private:
  [[noreturn]] void FailAt(std::int64_t image, const Picture& picture, std::size_t pixel) const;

  NameList files_;
  int classes_, ignored_;
  std::array<std::uint8_t, 256> class_of_{};  // of a label in a file; kIgnoredPixel also: none
  std::array<bool, 256> is_known_{};
};

}  // namespace ada::data
