// What the evaluate command prints and writes for tasks whose metrics are by class.
#pragma once
#include <iosfwd>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "telemetry/log.h"
#include "train/assemble/assemble.h"
#include "train/evaluate/evaluate.h"
#include "train/evaluate/evaluator.h"
#include "train/evaluate/outputs_file.h"
#include "train/metrics/prediction_folder.h"

namespace ada::train {

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
  // Predictions of split test lie in the folder itself, of another one in a folder within it.
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

}  // namespace ada::train
