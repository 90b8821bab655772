// Random changes of images together with their boxes.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "data/images/picture.h"
#include "data/images/random_changes.h"
#include "vision/box.h"

namespace ada::data {

// An image on a larger canvas: its size, and where the image lies on it. DrawSsdChanges draws it,
// and random_changes.h reads the canvas from it without making it.
struct Expansion {
  PictureSize canvas;
  int top = 0, left = 0;
};
// A canvas whose sides are the image's times `ratio`, without the fraction; the image lies anywhere
// on it.
Expansion DrawExpansion(double most_ratio, PictureSize of, Draws* draws);

// These move a single box, whose label stays with the caller. Results may reach beyond the image.
vision::Box Translated(const vision::Box& box, float down, float right);
// From an image of one size to another.
vision::Box ResizedBox(const vision::Box& box, PictureSize from, PictureSize to);
vision::Box Mirrored(const vision::Box& box, int width);

// The boxes in pixels of the crop, cut off at its edges; those whose center does not lie in it (the
// bottom and right edges are outside) and those of which nothing is left go.
std::vector<vision::LabeledBox> CropBoxes(const std::vector<vision::LabeledBox>& boxes,
                                          const Box& crop);

// How a crop is drawn: for each constraint up to `trials` boxes, whose sides are `scale` times
// those of the image, of an aspect (width to height) between 1 / most_aspect and most_aspect; the
// first of which every box has at least that overlap (IoU) with the crop is a candidate. One of the
// candidates is taken; the whole image is the first of them.
struct BoxCropSpec {
  Range scale{0.3, 1};
  double most_aspect = 2;
  std::vector<double> least_overlaps = {0.1, 0.3, 0.5, 0.7, 0.9, 0};
  int trials = 50;
};

// One trial as it is drawn. A crop does not touch the bottom or the right edge, unless it is as
// high or as wide as the image.
struct CropTrial {
  double scale = 1, aspect = 1;
  int top = 0, left = 0;
};
Box BoxOfTrial(const CropTrial& trial, PictureSize of);
PictureSize SizeOfTrial(double scale, double aspect, PictureSize of);
// Smallest and largest overlap of the boxes with the crop; there is at least one box.
struct Overlaps {
  double least = 0, most = 0;
};
Overlaps OverlapsWith(const Box& crop, const std::vector<vision::LabeledBox>& boxes);

// Without boxes there are no constraints: the whole image.
Box DrawBoxCrop(const BoxCropSpec& spec, PictureSize of,
                const std::vector<vision::LabeledBox>& boxes, Draws* draws);

// The random changes of images and boxes that SSD is trained with (Liu et al., ECCV 2016, section
// 2.2), as ChainerCV's example makes them: photometric distortion, expansion on a canvas, a crop
// that keeps an overlap with the boxes, resizing with a random interpolation, mirroring. With
// probability `p` the image lies on a larger canvas of one color, so that objects become smaller.
// The default color is ImageNet's mean in bytes.
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
