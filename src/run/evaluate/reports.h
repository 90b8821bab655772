// What is printed and written for tasks whose metrics are by class: of photos by predict, of a
// split by evaluate.
#pragma once
#include <iosfwd>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "run/assemble/assemble.h"
#include "run/evaluate/evaluation_commands.h"
#include "run/evaluate/evaluator.h"
#include "run/evaluate/predictions.h"
#include "run/metrics/prediction.h"
#include "telemetry/log.h"

namespace ada::run {

// What the predict command prints about photos for tasks whose metrics are by class: the classes of
// a photo's pixels, or the boxes found in it.
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

// What the evaluate command prints and writes for tasks whose metrics are by class.
// Prints a row a split: split,images,loss,miou,mean_class_accuracy,pixel_accuracy, of detection
// split,images,loss,map_07,map; with --per-class a row a class instead:
// split,class,name,pixels,iou, accuracy, or split,class,name,objects,ap_07,ap. nan: nothing to
// measure.
// The counterpart of SplitReport in evaluate.cpp, with the same calls: Write for each split, then
// Finish.
class TaskReport {
 public:
  // Throws ConfigError where options ask for what the task does not have, OutputError where their
  // files cannot be made.
  TaskReport(const config::Config& config, const RunData& data, Evaluator& evaluator,
             const EvaluateOptions& options, std::ostream& out, telemetry::Log& log);

  void Write(const std::string& split, const data::Dataset& dataset);
  void Finish();

 private:
  // Predictions of split test go to the folder itself, those of another split to a subfolder.
  PredictionFolder& FolderOf(const std::string& split);
  void PrintHead() const;
  void Print(const std::string& split, const EvaluationResult& result,
             const MetricsResult& metrics_result) const;

  const config::Config& config_;
  const RunData& data_;
  Evaluator& evaluator_;
  const EvaluateOptions& options_;
  std::ostream& out_;
  telemetry::Log& log_;
  std::vector<std::string> names_;
  std::map<std::string, PredictionFolder> folders_;
  std::optional<OutputsFile> outputs_;
};

}  // namespace ada::run
