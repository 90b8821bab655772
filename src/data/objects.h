// The labels of detection: the boxes of each image of a data set.
#pragma once
#include <string>
#include <vector>

#include "data/images/picture.h"
#include "vision/box.h"

namespace ada::data {

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

}  // namespace ada::data
