// The section `data` of a configuration, as far as it is about images, as plain values for readers
// and the loader.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/box_changes.h"
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

// What is done with an image besides moving and mirroring it, in this order: training takes a
// random resized crop, or resizes and crops; then colors are changed and, when it is normalized, a
// box is erased. Evaluation resizes and crops at the center. The configuration fills it in; it is
// part of a LoaderSpec, and ImageWriter and ImageRows read it.
struct ImageChanges {
  ResizeTo resize = {};
  PictureSize center_crop = {};  // 0: none; with random_crop the size that is cut
  // Changes of training images. The crop replaces resize and center_crop.
  std::optional<RandomResizedCrop> random_resized_crop = {};
  std::optional<ColorJitterSpec> color_jitter = {};
  std::optional<RandomErasingSpec> random_erasing = {};
  // After resize: scales both sides by a random factor. The network's input is cut from a random
  // place of that; if it is smaller, it is placed at random, and the rest is black and unlabeled.
  std::optional<Range> random_scale = {};
  // Changes of images with boxes; they replace all of these but resize.to, the size of the result.
  std::optional<SsdChangesSpec> ssd = {};

  bool crops() const { return center_crop.height > 0; }
  // Whether one of the random changes is asked for.
  bool random() const {
    return random_resized_crop || color_jitter || random_erasing || random_scale || ssd;
  }
  // Whether images are more than moved and mirrored.
  bool any() const { return resize.any() || random(); }
};

// The name of a class that says: pixels of this value are passed over.
inline constexpr char kIgnoredName[] = "ignored";

// What the values of label images mean, where they are not the numbers of the classes: the key
// data.label_values, as LabelFiles looks values up and the configuration writes it back.
struct LabelValues {
  // In the order given: a value of a gray or palette PNG (0 to 255), or a color 0xRRGGBB; and the
  // class, which several may have.
  std::vector<std::pair<std::uint32_t, std::string>> classes = {};
  bool by_color = false;

  bool any() const { return !classes.empty(); }
  friend bool operator==(const LabelValues&, const LabelValues&) = default;
};

// "#ff8000", or "255" of a value.
std::string ValueText(std::uint32_t value, bool is_color);

}  // namespace ada::data
