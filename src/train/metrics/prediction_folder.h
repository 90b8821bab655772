// A network's predictions for images, as files that people and other programs look at (evaluate
// --predictions FOLDER, predict --predictions FOLDER): of segmentation label images and overlays of
// their colors, of detection a list of boxes and pictures with the likely ones drawn.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/file.h"
#include "data/images/picture.h"
#include "train/metrics/prediction.h"

namespace ada::train {

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

}  // namespace ada::train
