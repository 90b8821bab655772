// The random changes of images and boxes that SSD is trained with (Liu et al., ECCV 2016, section
// 2.2), as ChainerCV's example makes them: photometric distortion, expansion on a canvas, a crop
// that keeps an overlap with the boxes, resizing with a random interpolation, mirroring.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/box_changes.h"
#include "data/images/opencv.h"
#include "data/images/picture.h"
#include "data/images/random_changes.h"

namespace ada::data {

// With probability `p` the image lies on a larger canvas of one color, so that objects become
// smaller. The default color is ImageNet's mean in bytes.
struct ExpandSpec {
  double p = 0.5;
  double most_ratio = 4;  // of the canvas's sides to the image's
  std::array<double, 3> fill = {123, 117, 104};
};

// These are the keys of data.augment.ssd; a part that is unset is left out. Defaults are those of
// ChainerCV's example.
struct SsdChangesSpec {
  std::optional<DistortSpec> distort = DistortSpec{};
  std::optional<ExpandSpec> expand = ExpandSpec{};
  std::optional<BoxCropSpec> crop = BoxCropSpec{};
  bool random_interpolation = true;  // false: linear
  double flip_p = 0.5;
};

// What was drawn for an image.
struct SsdChanges {
  Distortion distortion;
  std::optional<Expansion> expansion;
  std::array<double, 3> fill{};  // the canvas's color
  Box crop;                      // of the canvas, or of the image where it was not expanded
  Interpolation interpolation = Interpolation::kLinear;
  bool flip = false;
};

// Draws in the order in which the changes are made. `boxes`: of the image, in its pixels.
SsdChanges DrawSsdChanges(const SsdChangesSpec& spec, PictureSize of,
                          const std::vector<vision::LabeledBox>& boxes, Draws* draws);

// Makes a picture of 3 channels [to.height, to.width, 3] of fp32 values on the scale of bytes
// (resizing may leave 0..255) and moves the boxes with it; those whose center the crop leaves out
// are gone.
std::vector<float> ApplySsdChanges(const SsdChanges& changes, Picture picture, PictureSize to,
                                   std::vector<vision::LabeledBox>* boxes,
                                   HsvRounding rounding = HsvRounding::kNearest);

}  // namespace ada::data
