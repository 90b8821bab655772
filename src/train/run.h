// A whole training run. The composition root: here the rooms are put together.
#pragma once
#include <string>

#include "config/config.h"
#include "parallel/world.h"
#include "telemetry/log.h"

namespace ada::train {

// What the command line says of a run besides the configuration. `resume` goes on from the newest
// usable checkpoint in the run's folder; `overwrite` deletes what the folder holds; with neither a
// folder that holds a run is refused.
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

}  // namespace ada::train
