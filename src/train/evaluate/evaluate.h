// The evaluation of a checkpoint, as a command.
#pragma once
#include <iosfwd>
#include <string>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::train {

// What the command line asks for besides the configuration.
struct EvaluateOptions {
  // CSV file, one row an image; of segmentation and detection a folder
  // (metrics/prediction_folder.h); empty: none.
  std::string predictions;
  std::string outputs;     // safetensors file, the logits of split test; empty: none
  bool per_class = false;  // rows of classes instead of splits
  bool progress = true;    // the progress line, on a terminal
};
// Prints split,images,loss,top1,top5 of a checkpoint as CSV, or
// split,class,name,images,top1,top5,precision (of other tasks: evaluate/task_report.h). `weights`:
// either file of a checkpoint, or a safetensors file that has every parameter of the network;
// empty: the network as model.init leaves it.
// Throws ConfigError, DataError, DeviceError or OutputError; rows that were printed before stay.
void Evaluate(const config::Config& config, const std::string& weights,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log);

}  // namespace ada::train
