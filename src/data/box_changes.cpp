// The types of the arithmetic (fp32 boxes, fp64 ratios) are those that NumPy takes in ChainerCV's
// transforms. All is drawn first and made afterwards. Recorded draws therefore give recorded boxes
// to the last bit.
#include "data/box_changes.h"

#include <algorithm>
#include <cmath>

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

Expansion DrawExpansion(double most_ratio, PictureSize of, Draws* draws) {
  // The draw is fp32, as all draws are; its products are fp64.
  const auto ratio = static_cast<double>(draws->Uniform(1, static_cast<float>(most_ratio)));
  Expansion drawn;
  drawn.canvas = {static_cast<int>(of.height * ratio), static_cast<int>(of.width * ratio)};
  drawn.top = draws->Below(drawn.canvas.height - of.height + 1);
  drawn.left = draws->Below(drawn.canvas.width - of.width + 1);
  return drawn;
}

vision::Box Translated(const vision::Box& box, float down, float right) {
  return {box.y0 + down, box.x0 + right, box.y1 + down, box.x1 + right};
}

vision::Box ResizedBox(const vision::Box& box, PictureSize from, PictureSize to) {
  return vision::Scaled(box, static_cast<float>(static_cast<double>(to.height) / from.height),
                        static_cast<float>(static_cast<double>(to.width) / from.width));
}

vision::Box Mirrored(const vision::Box& box, int width) {
  const auto w = static_cast<float>(width);
  return {box.y0, w - box.x1, box.y1, w - box.x0};
}

std::vector<vision::LabeledBox> CropBoxes(const std::vector<vision::LabeledBox>& boxes,
                                          const Box& crop) {
  const auto top = static_cast<float>(crop.top), left = static_cast<float>(crop.left);
  const auto bottom = static_cast<float>(crop.top + crop.height);
  const auto right = static_cast<float>(crop.left + crop.width);
  std::vector<vision::LabeledBox> kept;
  for (const vision::LabeledBox& object : boxes) {
    const vision::Box& box = object.box;
    const float y = (box.y0 + box.y1) / 2, x = (box.x0 + box.x1) / 2;
    // This is written so that a center that is NaN is outside.
    if (!(top <= y && y < bottom && left <= x && x < right)) continue;
    const vision::Box cut{std::max(box.y0, top) - top, std::max(box.x0, left) - left,
                          std::min(box.y1, bottom) - top, std::min(box.x1, right) - left};
    if (cut.y0 < cut.y1 && cut.x0 < cut.x1) kept.push_back({cut, object.label, object.difficult});
  }
  return kept;
}

PictureSize SizeOfTrial(double scale, double aspect, PictureSize of) {
  const double root = std::sqrt(aspect);
  return {std::clamp(static_cast<int>(of.height * scale / root), 1, of.height),
          std::clamp(static_cast<int>(of.width * scale * root), 1, of.width)};
}

Box BoxOfTrial(const CropTrial& trial, PictureSize of) {
  const PictureSize size = SizeOfTrial(trial.scale, trial.aspect, of);
  return {trial.top, trial.left, size.height, size.width};
}

Overlaps OverlapsWith(const Box& crop, const std::vector<vision::LabeledBox>& boxes) {
  ADA_CHECK(!boxes.empty());
  // Overlap of fp32 boxes with an fp64 crop is computed in fp64, but for the areas of the boxes.
  const vision::BasicBox<double> box{static_cast<double>(crop.top), static_cast<double>(crop.left),
                                     static_cast<double>(crop.top + crop.height),
                                     static_cast<double>(crop.left + crop.width)};
  Overlaps overlaps{1, 0};
  for (const vision::LabeledBox& object : boxes) {
    const double overlap = vision::Overlap(object.box, box);
    overlaps = {std::min(overlaps.least, overlap), std::max(overlaps.most, overlap)};
  }
  return overlaps;
}

Box DrawBoxCrop(const BoxCropSpec& spec, PictureSize of,
                const std::vector<vision::LabeledBox>& boxes, Draws* draws) {
  // For each constraint the first trial that meets it is a candidate, so that at most one more than
  // there are constraints is chosen from. The number of draws depends on the boxes, and no other
  // image draws from the stream.
  std::vector<Box> candidates = {{0, 0, of.height, of.width}};
  const auto uniform = [&](double low, double high) {
    return static_cast<double>(draws->Uniform(static_cast<float>(low), static_cast<float>(high)));
  };
  for (const double least : boxes.empty() ? std::vector<double>{} : spec.least_overlaps) {
    for (int i = 0; i < spec.trials; ++i) {
      CropTrial trial;
      trial.scale = uniform(spec.scale.low, spec.scale.high);
      const double area = trial.scale * trial.scale;
      trial.aspect =
          uniform(std::max(1 / spec.most_aspect, area), std::min(spec.most_aspect, 1 / area));
      const PictureSize size = SizeOfTrial(trial.scale, trial.aspect, of);
      trial.top = draws->Below(std::max(1, of.height - size.height));
      trial.left = draws->Below(std::max(1, of.width - size.width));
      const Box box = BoxOfTrial(trial, of);
      if (OverlapsWith(box, boxes).least < least) continue;
      candidates.push_back(box);
      break;
    }
  }
  return candidates[static_cast<std::size_t>(draws->Below(static_cast<int>(candidates.size())))];
}

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
