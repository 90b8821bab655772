// First all is drawn, then all is made: so recorded draws can be made again without a source of
// draws.
#include <algorithm>

#include "data/box_changes.h"
#include "error.h"

namespace ada::data {
namespace {

// Those that a random interpolation is one of.
constexpr int kInterpolations = 5;

bool Happens(double p, Draws* draws) { return static_cast<double>(draws->Uniform(0, 1)) < p; }

void MoveBoxes(const Expansion& expansion, std::vector<vision::LabeledBox>* boxes) {
  for (vision::LabeledBox& object : *boxes)
    object.box = Translated(object.box, static_cast<float>(expansion.top),
                            static_cast<float>(expansion.left));
}

void FlipColumns(PictureSize size, std::vector<float>* image) {
  const std::ptrdiff_t row = std::ptrdiff_t{3} * size.width;
  for (std::ptrdiff_t y = 0; y < size.height; ++y) {
    float *left = image->data() + y * row, *right = left + row - 3;
    for (; left < right; left += 3, right -= 3) std::swap_ranges(left, left + 3, right);
  }
}

}  // namespace

// Boxes move with the expansion before the crop is drawn, since its constraints are about where
// they lie on the canvas.
SsdChanges DrawSsdChanges(const SsdChangesSpec& spec, PictureSize of,
                          const std::vector<vision::LabeledBox>& boxes, Draws* draws) {
  SsdChanges drawn;
  if (spec.distort) drawn.distortion = DrawDistortion(*spec.distort, draws);
  std::vector<vision::LabeledBox> moved = boxes;
  PictureSize canvas = of;
  if (spec.expand && Happens(spec.expand->p, draws)) {
    drawn.expansion = DrawExpansion(spec.expand->most_ratio, of, draws);
    drawn.fill = spec.expand->fill;
    canvas = drawn.expansion->canvas;
    MoveBoxes(*drawn.expansion, &moved);
  }
  drawn.crop = {0, 0, canvas.height, canvas.width};
  if (spec.crop) drawn.crop = DrawBoxCrop(*spec.crop, canvas, moved, draws);
  if (spec.random_interpolation)
    drawn.interpolation = static_cast<Interpolation>(draws->Below(kInterpolations));
  drawn.flip = Happens(spec.flip_p, draws);
  return drawn;
}

std::vector<float> ApplySsdChanges(const SsdChanges& changes, Picture picture, PictureSize to,
                                   std::vector<vision::LabeledBox>* boxes, HsvRounding rounding) {
  ADA_CHECK(picture.channels == 3);
  // Colors are distorted before the picture lies on the canvas, whose color stays as it was given.
  Distort(changes.distortion, rounding, &picture);
  Canvas canvas{&picture, picture.size(), 0, 0, {}};
  if (changes.expansion) {
    const Expansion& expansion = *changes.expansion;
    canvas = {&picture, expansion.canvas, expansion.top, expansion.left, {}};
    for (std::size_t c = 0; c < 3; ++c) canvas.color[c] = static_cast<float>(changes.fill[c]);
    MoveBoxes(expansion, boxes);
  }
  // Expansion, crop and resizing are one step: of a canvas of up to 16 times the picture's area
  // only the crop is looked at.
  std::vector<float> image = ResizeToFloats(canvas, changes.crop, to, changes.interpolation);
  if (changes.flip) FlipColumns(to, &image);
  *boxes = CropBoxes(*boxes, changes.crop);
  for (vision::LabeledBox& object : *boxes) {
    object.box = ResizedBox(object.box, {changes.crop.height, changes.crop.width}, to);
    if (changes.flip) object.box = Mirrored(object.box, to.width);
  }
  return image;
}

}  // namespace ada::data
