// What a checkpoint says of photos, as a command.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::train {

enum class PredictFormat { kText, kCsv, kJson };
struct PredictOptions {
  int top = 5;  // classes that are named
  PredictFormat format = PredictFormat::kText;
  bool asks_data = false;   // the data set says what images and classes are, not the checkpoint
  std::string predictions;  // folder (metrics/prediction_folder.h); empty: none
};
// Prints the likeliest classes of each photo, or of each picture in a folder that stands in a
// photo's place (JPEG, PNG, WebP; of other tasks evaluate/photo_report.h), which is resized and
// cropped as images of an evaluation; where the configuration says nothing of that, as small as
// covers the network's input, and its center. `weights`: as in Evaluate, not empty. Where they are
// a checkpoint that knows its images the data set is not looked at. Photos that cannot be read are
// left out with a warning where there are several; DataError where none can.
void Predict(const config::Config& config, const std::string& weights,
             const std::vector<std::string>& photos, const PredictOptions& options,
             std::ostream& out, telemetry::Log& log);

}  // namespace ada::train
