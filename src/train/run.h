// What the command line can ask for: a whole training run, its dry run, the evaluation of a
// checkpoint. The composition root: here the rooms are put together.
#pragma once
#include <iosfwd>
#include <string>
#include <vector>

#include "config/config.h"
#include "telemetry/log.h"

namespace ada::train {

struct RunOptions {
  bool resume = false, overwrite = false;
  bool progress = true;  // the progress line, on a terminal
};

// Trains. Returns the exit code: 0, or 128 + the signal that stopped the run after a checkpoint, or
// 128 + SIGPIPE where nobody reads its summary.
// Throws ada::Error.
int Train(const config::Config& config, const RunOptions& options, telemetry::Log& log);

// Checks configuration and data, prints the layer table and the memory needed; trains nothing.
void DryRun(const config::Config& config, std::ostream& out);

// Writes a sheet of the first training batch, augmented, with its labels, as PNG to `path`, and a
// line about it to `out`.
void Preview(const config::Config& config, const std::string& path, std::ostream& out);

struct EvaluateOptions {
  std::string predictions;  // CSV file, one row an image; empty: none
  bool per_class = false;   // rows of classes instead of splits
  bool progress = true;     // the progress line, on a terminal
};
// Prints split,images,loss,top1,top5 of a checkpoint as CSV, or
// split,class,name,images,top1,top5,precision. `weights`: either file of a checkpoint, or a
// safetensors file that has every parameter of the network.
void Evaluate(const config::Config& config, const std::string& weights,
              const EvaluateOptions& options, std::ostream& out, telemetry::Log& log);

// The tensors' file of a run's newest checkpoint, or of its best. DataError where there is none.
std::string CheckpointOfRun(const std::string& folder, bool best);

// One line each: models, policies, formats or datasets.
std::vector<std::string> List(const std::string& what);

// The configuration that a checkpoint was written with, as YAML. DataError, also of weights alone.
std::string CheckpointConfig(const std::string& checkpoint);

// Program, compiler, backends and libraries: "name value" lines of --version.
struct Version {
  std::string name, value;
};
std::vector<Version> Versions();

}  // namespace ada::train
