// Commands that use a checkpoint: evaluate it on a data set, predict the classes of photos,
// generate a text.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::run {

// What the command line asks of an evaluation besides the configuration.
struct EvaluateOptions {
  // CSV file, one row an image; for segmentation and detection a folder
  // (metrics/prediction.h); empty: none.
  std::string predictions;
  std::string outputs;     // safetensors file, the logits of split test; empty: none
  bool per_class = false;  // rows of classes instead of splits
  bool progress = true;    // the progress line, on a terminal
};
// Prints split,images,loss,top1,top5 of a checkpoint as CSV, or
// split,class,name,images,top1,top5,precision (of other tasks: evaluate/reports.h). `weights`:
// either file of a checkpoint, or a safetensors file that has every parameter of the network;
// empty: the network as model.init leaves it.
// Throws ConfigError, DataError, DeviceError or OutputError; rows that were printed before stay.
void Evaluate(const config::Config& config, const std::string& weights,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log);

enum class PredictFormat { kText, kCsv, kJson };
struct PredictOptions {
  int top = 5;  // classes that are named
  PredictFormat format = PredictFormat::kText;
  bool asks_data = false;   // take image sizes and class names from the data set
  std::string predictions;  // folder (metrics/prediction.h); empty: none
};
// Prints the likeliest classes of each photo, or of each picture in a folder given instead of a
// photo (JPEG, PNG, WebP; for other tasks see evaluate/reports.h). Photos are resized and cropped
// like the images of an evaluation; if the configuration says nothing about that, to the smallest
// size that covers the network's input, and at the center. `weights`: as in Evaluate, not empty.
// For a checkpoint that describes its images the data set is not read. Unreadable photos among
// several are left out with a warning; DataError if none can be read.
void Predict(const config::Config& config, const std::string& weights,
             const std::vector<std::string>& photos, const PredictOptions& options,
             std::ostream& out, telemetry::Log& log);

// One of the two prompts is given; the model's data decide which one it takes (TokensAreBytes).
struct GenerateOptions {
  std::string prompt;                       // text, for models whose tokens are bytes
  std::vector<std::int64_t> prompt_tokens;  // for other models
  std::int64_t tokens = 256;                // to be generated
  double temperature = 1;                   // logits are divided by it; 0: always the likeliest
  std::uint64_t seed = 1;
};
// Continues a prompt, token by token, with a language model (`weights`: as in Predict), and prints
// the prompt and the continuation: as bytes, whether they are UTF-8 or not, or as numbers separated
// by blanks. If the text is longer than the context, only its last tokens are used. The
// same options give the same text. The data set is read only if a checkpoint does not say how long
// the context is.
void Generate(const config::Config& config, const std::string& weights,
              const GenerateOptions& options, std::ostream& out, telemetry::Log& log);

}  // namespace ada::run
