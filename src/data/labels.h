// Labels of images that are more than a class: label images and boxes, and what of them a network's
// input shows.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "vision/box.h"

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
  // The label in the files that is passed over; -1: there is none.
  virtual int ignored() const = 0;
  // Memory while the label image is decoded, from its header.
  virtual std::uint64_t DecodingBytesOf(std::int64_t image) const = 0;
};

// Holds the boxes of one image, which are read when the set is opened; a Dataset has one for each
// image of its files.
struct ImageObjects {
  std::string name;  // as lists of images and results call it: without folder and ending
  PictureSize size;  // of the image in its file
  // All boxes in pixels from 0, as the file has them: difficult ones, those without area and those
  // that reach beyond the image included, for a metric counts them. Training takes TrainingBoxes.
  std::vector<vision::LabeledBox> boxes;
};

// What training sees of an image's boxes: cut off at the image's edges; without the difficult ones
// and those of which nothing is left (no area, inverted, outside).
std::vector<vision::LabeledBox> TrainingBoxes(const ImageObjects& objects);

// What a network's input shows of a stored picture, so that labels and boxes can go with it: `box`
// of the picture is resized to `resized`; of that `window` is shown, which may reach beyond it;
// then columns are mirrored if `flip`. ImageWriter writes it for each image whose labels follow it.
// Boxes and sizes are in whole pixels: `box` of the stored picture, `window` of the resized one.
struct ShownPart {
  PictureSize stored;
  Box box;
  PictureSize resized;
  Box window;
  bool flip = false;
};

// The labels of the part, from a label image of the stored picture's size (one channel): each pixel
// has that of the pixel in which its center lies (nearest, as PIL's), kNoLabel for kIgnoredPixel
// and beside the picture. `out`: [window.height, window.width]. Returns how many have a label.
std::int64_t ShowLabels(const ShownPart& part, const Picture& labels, std::int32_t* out);

// The boxes of the part, in its pixels; those whose center it does not show, and those of which
// nothing is left, are gone.
std::vector<vision::LabeledBox> ShowBoxes(const ShownPart& part,
                                          const std::vector<vision::LabeledBox>& boxes);

}  // namespace ada::data
