// A network's prediction for one image, in the image's own pixels: segmentation and detection.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "config/config.h"
#include "core/tensor.h"
#include "data/images/picture.h"
#include "vision/coder.h"

namespace ada::train {

struct Prediction {
  data::PictureSize size;                // of the image in its file
  std::vector<std::int32_t> labels;      // segmentation: a class each pixel, row by row
  std::vector<vision::Detection> boxes;  // detection: as vision::BoxCoder::Decode orders them
};

// The default boxes of detection.boxes, or of the zoo network, on images of this shape; null for
// other tasks. Throws ConfigError where they cannot be those of a network on such images.
std::shared_ptr<const vision::BoxCoder> MakeCoder(const config::Config& config, const Shape& image);

// Throws ConfigError where the network gives another number of boxes than these default boxes are.
void CheckBoxes(const config::Config& config, const Shape& image);

// Used by metrics during evaluations and by the predict command. It has no state that changes.
class PredictionMaker {
 public:
  // image: what the network takes; classes: of its last output, the background included.
  PredictionMaker(const config::Config& config, const Shape& image, int classes);

  // From a graph's outputs for one image that has this size in its file. Segmentation: the largest
  // logit, of equals the first, NaN never unless all are (then class 0), brought to the size by
  // nearest. Detection: boxes may reach beyond the image.
  Prediction Make(const std::vector<const float*>& outputs, data::PictureSize size) const;

 private:
  std::vector<std::int32_t> Labels(const float* logits, data::PictureSize size) const;

  Task task_;
  Shape image_;
  int classes_;
  std::shared_ptr<const vision::BoxCoder> coder_;
  vision::DecodeSpec decode_;
};

}  // namespace ada::train
