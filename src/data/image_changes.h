// What is done with an image beside moving and mirroring it, in this order: training takes a random
// resized crop, or resizes and crops; then colours are changed and, when it is normalised, a box is
// erased. Evaluation resizes and crops at the centre.
#pragma once
#include <optional>

#include "data/images/picture.h"
#include "data/images/random_changes.h"

namespace ada::data {

// Nothing set: no resizing.
struct ResizeTo {
  int shorter = 0;      // the shorter side becomes so long
  PictureSize to = {};  // or both sides do
  bool any() const { return shorter > 0 || to.height > 0; }
};

struct RandomResizedCrop {
  PictureSize size;  // of the result
  RandomCropSpec box;
};

struct ImageChanges {
  ResizeTo resize = {};
  PictureSize center_crop = {};  // 0: none; with random_crop the size that is cut
  // Of training. The crop replaces resize and center_crop.
  std::optional<RandomResizedCrop> random_resized_crop = {};
  std::optional<ColorJitterSpec> color_jitter = {};
  std::optional<RandomErasingSpec> random_erasing = {};

  bool crops() const { return center_crop.height > 0; }
  // Whether images are more than moved and mirrored.
  bool any() const { return resize.any() || random_resized_crop || color_jitter || random_erasing; }
};

}  // namespace ada::data
