// What a checkpoint is good for, as commands: evaluate on a data set, predict photos, generate a
// text.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::train {

// The evaluation of a checkpoint, as a command.

// What the command line asks for besides the configuration.
struct EvaluateOptions {
  // CSV file, one row an image; of segmentation and detection a folder
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

// What a checkpoint says of photos, as a command.

enum class PredictFormat { kText, kCsv, kJson };
struct PredictOptions {
  int top = 5;  // classes that are named
  PredictFormat format = PredictFormat::kText;
  bool asks_data = false;   // the data set says what images and classes are, not the checkpoint
  std::string predictions;  // folder (metrics/prediction.h); empty: none
};
// Prints the likeliest classes of each photo, or of each picture in a folder that stands in a
// photo's place (JPEG, PNG, WebP; of other tasks evaluate/reports.h), which is resized and
// cropped as images of an evaluation; where the configuration says nothing of that, as small as
// covers the network's input, and its center. `weights`: as in Evaluate, not empty. Where they are
// a checkpoint that knows its images the data set is not looked at. Photos that cannot be read are
// left out with a warning where there are several; DataError where none can.
void Predict(const config::Config& config, const std::string& weights,
             const std::vector<std::string>& photos, const PredictOptions& options,
             std::ostream& out, telemetry::Log& log);

// A text that a language model goes on with, as a command.

// One of the two prompts is given; which one a model takes follows from its data (TokensAreBytes).
struct GenerateOptions {
  std::string prompt;                       // text, of models whose tokens are bytes
  std::vector<std::int64_t> prompt_tokens;  // of others
  std::int64_t tokens = 256;                // to be made
  double temperature = 1;                   // logits are divided by it; 0: always the likeliest
  std::uint64_t seed = 1;
};
// Goes on with a prompt, token by token, by the weights of a language model (`weights`: as of
// Predict), and prints the prompt and what follows: as text, where bytes that are no UTF-8 become
// U+FFFD, or as numbers between blanks. Where the text is longer than the context the last tokens
// of it are looked at. The same options give the same text. The data set is looked at only where a
// checkpoint does not say how long the context is.
void Generate(const config::Config& config, const std::string& weights,
              const GenerateOptions& options, std::ostream& out, telemetry::Log& log);

}  // namespace ada::train
