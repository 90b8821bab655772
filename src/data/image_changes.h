// What is done with an image besides moving and mirroring it, in this order: training takes a
// random resized crop, or resizes and crops; then colors are changed and, when it is normalized, a
// box is erased. Evaluation resizes and crops at the center.
#pragma once
#include <optional>

#include "data/detection/ssd_changes.h"
#include "data/images/picture.h"
#include "data/images/random_changes.h"

namespace ada::data {

// Nothing set: no resizing.
struct ResizeTo {
  int shorter = 0;      // the shorter side becomes so long
  PictureSize to = {};  // or both sides do
  bool any() const { return shorter > 0 || to.height > 0; }
};

// Takes a random part of the image and resizes it, as torchvision's RandomResizedCrop does.
struct RandomResizedCrop {
  PictureSize size;  // of the result
  RandomCropSpec box;
};

// The configuration fills it in; it is part of a LoaderSpec, and ImageWriter and ImageRows read it.
struct ImageChanges {
  ResizeTo resize = {};
  PictureSize center_crop = {};  // 0: none; with random_crop the size that is cut
  // Changes of training images. The crop replaces resize and center_crop.
  std::optional<RandomResizedCrop> random_resized_crop = {};
  std::optional<ColorJitterSpec> color_jitter = {};
  std::optional<RandomErasingSpec> random_erasing = {};
  // After resize: both sides times a random factor. What the network sees is cut from a random
  // place of that; where it is smaller it lies anywhere, and the rest is black and has no label.
  std::optional<Range> random_scale = {};
  // Changes of images with boxes; they replace all of these but resize.to, the size of the result.
  std::optional<SsdChangesSpec> ssd = {};

  bool crops() const { return center_crop.height > 0; }
  // Whether images are more than moved and mirrored.
  bool any() const {
    return resize.any() || random_resized_crop || color_jitter || random_erasing || random_scale ||
           ssd;
  }
};

}  // namespace ada::data
