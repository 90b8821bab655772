// What a network's input shows of a stored picture, so that labels and boxes can go with it.
#pragma once
#include <cstdint>
#include <vector>

#include "data/images/picture.h"
#include "vision/box.h"

namespace ada::data {

// `box` of the picture is resized to `resized`; of that `window` is shown, which may reach beyond
// it; then columns are mirrored if `flip`. ImageWriter writes it for each image whose labels follow
// it. Boxes and sizes are in whole pixels: `box` of the stored picture, `window` of the resized
// one.
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
