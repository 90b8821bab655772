// A whole training run. This is the composition root: here all modules are connected.
#pragma once
#include <string>

#include "config/config.h"
#include "parallel/world.h"
#include "telemetry/log.h"

namespace ada::run {

// What the command line asks for besides the configuration. `resume` continues from the newest
// usable checkpoint in the run's folder; `overwrite` deletes what the folder holds; without either,
// a folder that already holds a run is an error.
struct RunOptions {
  bool resume = false, overwrite = false;
  bool progress = true;  // the progress line, on a terminal
  parallel::World* world =
      &parallel::Alone();             // the processes that share the run: each calls Train
  std::string program = "ada-train";  // as it was called
};

// Trains. Returns the exit code: 0; 128 + the signal that stopped the run after a checkpoint; or
// 128 + SIGPIPE if the reader of its summary is gone.
// Throws ada::Error.
int Train(const config::Config& config, const RunOptions& options, telemetry::Log& log);

}  // namespace ada::run
