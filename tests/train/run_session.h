// A whole training, with its logs and checkpoints, on a backend of the test's choice.
#pragma once
#include <filesystem>
#include <optional>
#include <string>

#include "run/assemble/assemble.h"
#include "run/session.h"
#include "run/signals.h"
#include "step/specs.h"

namespace ada::testing {

// Trains `config`, whose defaults are filled in, in folder `path`, from the newest checkpoint there
// if there is one. Returns the exit code.
inline int RunSession(backend::Backend& backend, const config::Config& config,
                      const std::string& path) {
  std::filesystem::create_directories(path);
  telemetry::Log log(telemetry::LogLevel::kError);
  const run::RunData data = run::ReadData(config);
  const auto policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(step::TrainGraph(config, data.image, *policy), backend);
  const auto from = run::FindResumePoint(path + "/checkpoints", config, log);
  const run::SignalWatch signals;
  run::Session session({config, data, log, signals, path}, {config, backend, *graph, *policy, 1},
                       std::nullopt, from);
  session.OpenLogs();
  return session.Run().value();
}

}  // namespace ada::testing
