// A label image is decoded to the values in its file (numbers or colors), mapped to classes by a
// table, and rotated like its picture.
#include "data/segmentation/label_files.h"

#include <algorithm>
#include <utility>

#include "data/file_fault.h"
#include "data/images/picture.h"
#include "error.h"
#include "io/text.h"

namespace ada::data {

std::string ValueText(std::uint32_t value, bool is_color) {
  return is_color ? Formatted("#%06x", value) : std::to_string(value);
}

LabelFiles::LabelFiles(NameList files, PixelClasses classes,
                       std::shared_ptr<const ImageStore> pictures)
    : files_(std::move(files)), classes_(std::move(classes)), pictures_(std::move(pictures)) {
  const std::vector<std::string>& names = classes_.names;
  ADA_CHECK(names.size() <= std::size_t{kMostPixelClasses} && classes_.ignored < 256);
  class_of_.fill(kIgnoredPixel);
  const auto know = [this](std::size_t label, std::size_t of_class) {
    class_of_[label] = static_cast<std::uint8_t>(of_class);
    is_known_[label] = true;
  };
  if (!classes_.values.any())
    for (std::size_t label = 0; label < names.size(); ++label) know(label, label);
  // Later entries win: an ignored label is ignored even where a class has its number, and
  // data.label_values may give it a class again.
  if (classes_.ignored >= 0) know(static_cast<std::size_t>(classes_.ignored), kIgnoredPixel);
  for (const auto& [value, name] : classes_.values.classes) {
    const auto found = std::find(names.begin(), names.end(), name);
    const auto of_class = found == names.end() ? std::size_t{kIgnoredPixel}
                                               : static_cast<std::size_t>(found - names.begin());
    if (classes_.values.by_color)
      class_of_color_.emplace(value, static_cast<std::uint8_t>(of_class));
    else
      know(value, of_class);
  }
}

Picture LabelFiles::Read(std::int64_t image) const {
  Picture labels = classes_.values.by_color ? ReadColors(image) : ReadValues(image);
  const int orientation = OrientationFor(image, labels.size());
  return Turned(std::move(labels), orientation);
}

Picture LabelFiles::ReadValues(std::int64_t image) const {
  Picture picture = ReadLabelPng(NameOf(image));
  bool all_known = true;
  for (const std::uint8_t label : picture.pixels) all_known &= is_known_[label];
  if (!all_known) {
    const auto unknown = std::find_if(picture.pixels.begin(), picture.pixels.end(),
                                      [this](std::uint8_t label) { return !is_known_[label]; });
    FailAt(image, picture, static_cast<std::size_t>(unknown - picture.pixels.begin()),
           "label " + std::to_string(*unknown));
  }
  for (std::uint8_t& label : picture.pixels) label = class_of_[label];
  return picture;
}

Picture LabelFiles::ReadColors(std::int64_t image) const {
  const Picture colors = ReadColorPng(NameOf(image));
  Picture labels{colors.height, colors.width, 1, {}};
  labels.pixels.resize(colors.pixels.size() / 3);
  std::uint32_t last = ~std::uint32_t{0};  // no color: neighbors mostly have the same one
  std::uint8_t label = 0;
  for (std::size_t i = 0; i < labels.pixels.size(); ++i) {
    const std::uint8_t* rgb = &colors.pixels[3 * i];
    const std::uint32_t color = std::uint32_t{rgb[0]} << 16 | std::uint32_t{rgb[1]} << 8 | rgb[2];
    if (color != last) {
      const auto found = class_of_color_.find(color);
      if (found == class_of_color_.end())
        FailAt(image, labels, i, "the color " + ValueText(color, true));
      last = color;
      label = found->second;
    }
    labels.pixels[i] = label;
  }
  return labels;
}

void LabelFiles::FailAt(std::int64_t image, const Picture& picture, std::size_t pixel,
                        const std::string& label) const {
  const std::size_t width = static_cast<std::size_t>(picture.width);
  const std::string place = NameOf(image) + ": row " + std::to_string(pixel / width) + ", column " +
                            std::to_string(pixel % width) + ": " + label;
  // A value that was given a class is not ignored, whatever data.ignored_label says.
  const bool ignores = classes_.ignored >= 0 &&
                       class_of_[static_cast<std::size_t>(classes_.ignored)] == kIgnoredPixel;
  const std::string ignored =
      ignores ? " nor the ignored label " + std::to_string(classes_.ignored) : "";
  if (classes_.values.any())
    throw FaultyFile(FaultKind::kLabel, place + " is none of data.label_values" + ignored +
                                            "; give it a class there, or the word " + kIgnoredName);
  const std::size_t classes = classes_.names.size();
  throw FaultyFile(
      FaultKind::kLabel,
      place + " is none of the " + std::to_string(classes) + " classes (0 to " +
          std::to_string(classes - 1) + ")" + ignored +
          "; name all classes in data.class_names, say data.ignored_label, or what each "
          "value means in data.label_values");
}

int LabelFiles::OrientationFor(std::int64_t image, PictureSize labels) const {
  if (!pictures_->rules().applies_exif) return 1;
  const PictureNeeds picture = pictures_->HeaderOf(image);
  return labels != picture.size && labels == picture.stored ? picture.traits.orientation : 1;
}

void LabelFiles::RequireLabels(std::int64_t image, const PictureTraits& traits) const {
  // Reading the whole file reports what it is instead.
  if (classes_.values.by_color && !traits.png) ReadColorPng(NameOf(image));
  if (!classes_.values.by_color && !traits.may_be_labels) ReadLabelPng(NameOf(image));
}

PictureSize LabelFiles::SizeOf(std::int64_t image) const {
  const PictureNeeds header = HeaderOf(image);
  RequireLabels(image, header.traits);
  const PictureSize stored = header.stored;
  return Turned(stored, OrientationFor(image, stored));
}

}  // namespace ada::data
