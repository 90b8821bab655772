// A network's prediction for one image, in the image's own pixels: segmentation and detection.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "data/images/picture.h"
#include "io/file.h"
#include "number/tensor.h"
#include "vision/coder.h"

namespace ada::run {

struct Prediction {
  data::PictureSize size;                // of the image in its file
  std::vector<std::int32_t> labels;      // segmentation: a class each pixel, row by row
  std::vector<vision::Detection> boxes;  // detection: as vision::BoxCoder::Decode orders them
};

// The default boxes of detection.boxes, or of the zoo network, for images of this shape; null for
// other tasks. Throws ConfigError if no network on such images can have these boxes.
std::shared_ptr<const vision::BoxCoder> MakeCoder(const config::Config& config, const Shape& image);

// Throws ConfigError if the network gives another number of boxes than there are default boxes.
void CheckBoxes(const config::Config& config, const Shape& image);

// Used by metrics during evaluations and by the predict command. It has no state that changes.
class PredictionMaker {
 public:
  // image: input shape of the network; classes: of its last output, including the background.
  PredictionMaker(const config::Config& config, const Shape& image, int classes);

  // Makes the prediction from a graph's outputs for one image with this size in its file.
  // Segmentation: the class with the largest logit, the first of equal ones (NaN only counts if all
  // are NaN: class 0), resized by nearest neighbor. Detection: boxes may extend beyond the image.
  Prediction Make(const std::vector<const float*>& outputs, data::PictureSize size) const;

 private:
  std::vector<std::int32_t> Labels(const float* logits, data::PictureSize size) const;

  Task task_;
  Shape image_;
  int classes_;
  std::shared_ptr<const vision::BoxCoder> coder_;
  vision::DecodeSpec decode_;
};

// A network's predictions for images, as files that people and other programs look at (evaluate
// --predictions FOLDER, predict --predictions FOLDER): of segmentation label images and overlays of
// their colors, of detection a list of boxes and pictures with the likely ones drawn.
// Segmentation: <title>.png has 8 bits a pixel, the class, in the image's own size and with a
// palette of colors; overlays/<title>.png the image with these colors mixed in.
// Detection: detections.csv (image,label,score,xmin,ymin,xmax,ymax: the image's title, the class's
// name, pixels from 0 that read back exactly) has every box; overlays/<title>.png those from
// detection.draw on.
// Pictures are written as they are added; detections.csv appears whole when Commit is called, or
// not at all.
class PredictionFolder {
 public:
  // Makes the folder where it is missing. OutputError. `names` (may be empty) must outlive it.
  PredictionFolder(const config::Config& config, std::string folder,
                   const std::vector<std::string>& names);

  // title: of an image, without folder and ending; picture: the image, RGB, of the prediction's
  // size. OutputError.
  void Add(const std::string& title, data::Picture picture, const Prediction& prediction);
  // Puts detections.csv in its place.
  void Commit();

 private:
  void AddBoxes(const std::string& title, data::Picture& picture, const Prediction& prediction);

  Task task_;
  float draw_;
  std::string folder_;
  const std::vector<std::string>& names_;
  std::optional<AtomicFile> detections_;
};

// "photos/cat.1.jpg" -> "cat.1".
std::string TitleOfFile(const std::string& path);

}  // namespace ada::run
