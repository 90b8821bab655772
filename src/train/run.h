// What the command line can ask for: a whole training run, its dry run, the evaluation of a
// checkpoint. The composition root: here the rooms are put together.
#pragma once
#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "config/config.h"
#include "parallel/world.h"
#include "telemetry/log.h"

namespace ada::train {

struct RunOptions {
  bool resume = false, overwrite = false;
  bool progress = true;  // the progress line, on a terminal
  parallel::World* world =
      &parallel::Alone();             // the processes that share the run: each calls Train
  std::string program = "ada-train";  // as it was called
};

// Trains. Returns the exit code: 0, or 128 + the signal that stopped the run after a checkpoint, or
// 128 + SIGPIPE where nobody reads its summary.
// Throws ada::Error.
int Train(const config::Config& config, const RunOptions& options, telemetry::Log& log);

// Checks configuration and data, prints the layer table and the memory needed; trains nothing.
// measure: also three steps on made-up images, and what an epoch will take.
void DryRun(const config::Config& config, bool measure, std::ostream& out);

// step,epoch,lr of every `every`-th step from the first, and of the last, of a run without skipped
// steps, as CSV; numbers read back exactly. steps_per_epoch 0: what the data set gives.
void PrintRates(const config::Config& config, std::int64_t steps_per_epoch, std::int64_t every,
                std::ostream& out);

// Writes a sheet of the first training batch, augmented, with its labels, as PNG to `path`, and a
// line about it to `out`.
void Preview(const config::Config& config, const std::string& path, std::ostream& out);

struct EvaluateOptions {
  // CSV file, one row an image; of segmentation and detection a folder
  // (metrics/prediction_folder.h); empty: none.
  std::string predictions;
  std::string outputs;     // safetensors file, the logits of split test; empty: none
  bool per_class = false;  // rows of classes instead of splits
  bool progress = true;    // the progress line, on a terminal
};
// Prints split,images,loss,top1,top5 of a checkpoint as CSV, or
// split,class,name,images,top1,top5,precision (of other tasks: metrics/task_report.h). `weights`:
// either file of a checkpoint, or a safetensors file that has every parameter of the network;
// empty: the network as model.init leaves it.
void Evaluate(const config::Config& config, const std::string& weights,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log);

enum class PredictFormat { kText, kCsv, kJson };
struct PredictOptions {
  int top = 5;  // classes that are named
  PredictFormat format = PredictFormat::kText;
  bool asks_data = false;   // the data set says what images and classes are, not the checkpoint
  std::string predictions;  // folder (metrics/prediction_folder.h); empty: none
};
// Prints the likeliest classes of each photo, or of each picture in a folder that stands in a
// photo's place (JPEG, PNG, WebP; of other tasks metrics/photo_report.h), which is resized and
// cropped as images of an evaluation; where the configuration says nothing of that, as small as
// covers the network's input, and its center. `weights`: as in Evaluate, not empty. Where they are
// a checkpoint that knows its images the data set is not looked at. Photos that cannot be read are
// left out with a warning where there are several; DataError where none can.
void Predict(const config::Config& config, const std::string& weights,
             const std::vector<std::string>& photos, const PredictOptions& options,
             std::ostream& out, telemetry::Log& log);

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

// The tensors' file of a run's newest checkpoint, or of its best. DataError where there is none.
std::string CheckpointOfRun(const std::string& folder, bool best);

// One line each: models, policies, formats or datasets.
std::vector<std::string> List(const std::string& what);

// Where the data of a configuration come from, in words: the command that fetches them, the
// system's folder, or the user's own.
std::string DataSource(const config::DataConfig& data);

// The configuration that a checkpoint was written with, as YAML. DataError, also of weights alone.
std::string CheckpointConfig(const std::string& checkpoint);
// The step after which a checkpoint was written; of weights alone the last that there could be, of
// an empty path (the network as it starts) 1. DataError.
std::int64_t StepOfWeights(const std::string& path);

// Program, compiler, backends and libraries: "name value" lines of --version.
struct Version {
  std::string name, value;
};
std::vector<Version> Versions(const parallel::World& world = parallel::Alone());

}  // namespace ada::train
