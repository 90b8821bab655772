// How boxes change when their image is expanded, cropped, resized or mirrored, and which crops keep
// an overlap with them. fp32 arithmetic like ChainerCV's on NumPy arrays.
#pragma once
#include <cstddef>
#include <optional>
#include <vector>

#include "data/images/picture.h"
#include "data/images/random_changes.h"
#include "vision/box.h"

namespace ada::data {

// An image on a larger canvas: its size, and where the image lies on it. DrawSsdChanges draws it,
// and opencv.h reads the canvas from it without making it.
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

}  // namespace ada::data
