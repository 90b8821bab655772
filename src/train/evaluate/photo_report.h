// What the predict command prints of photos, of tasks whose metrics are by class: the classes of a
// photo's pixels, or the boxes found on it.
#pragma once
#include <iosfwd>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "train/evaluate/predict.h"
#include "train/metrics/prediction_folder.h"

namespace ada::train {

// As CSV photo,class,name,pixels,share (classes by falling share), or
// photo,class,name,score,xmin,ymin,xmax,ymax (boxes by falling score, from detection.draw on, in
// pixels from 0).
// Made by Predict; Add is called for each photo in turn, Finish once at the end.
class PhotoReport {
 public:
  // `names` must outlive it. OutputError where the folder of predictions cannot be made.
  PhotoReport(const config::Config& config, const PredictOptions& options,
              const std::vector<std::string>& names, std::ostream& out);

  void Add(const std::string& photo, data::Picture picture, const Prediction& prediction);
  void Finish();

 private:
  // One line of a photo: a class or a box.
  struct Line {
    int label = 0;
    double share = 0;  // of pixels; or the score
    std::int64_t pixels = 0;
    vision::Box box;
  };
  std::vector<Line> LinesOf(const Prediction& prediction) const;
  void PrintText(const std::string& photo, const std::vector<Line>& lines);
  void PrintCsv(const std::string& photo, const std::vector<Line>& lines);
  void AddJson(const std::string& photo, const std::vector<Line>& lines);
  std::string NameOf(int label) const;

  bool detects_;
  double draw_;
  const PredictOptions& options_;
  const std::vector<std::string>& names_;
  std::ostream& out_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
  std::optional<PredictionFolder> folder_;
};

}  // namespace ada::train
