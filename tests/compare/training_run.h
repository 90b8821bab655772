// A whole run, with its logs, on a backend of the test's choice.
#pragma once
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "config/load.h"
#include "train/session.h"

namespace ada::backend::test {

// Trains as `text` (a configuration) says; logs and checkpoints go to `path`.
inline void TrainOn(Backend& backend, const std::string& text, const config::Overrides& overrides,
                    const std::string& path) {
  config::Config config = config::LoadText(text, "run.yaml", overrides).config;
  std::filesystem::create_directories(path);
  config::FillDefaults(config);
  telemetry::Log log(telemetry::LogLevel::kError);
  const train::RunData data = train::ReadData(config);
  const Shape image{1, data.train.height, data.train.width, data.train.channels};
  const auto policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(train::TrainGraph(config, image, *policy), backend);
  const train::SignalWatch signals;
  train::Session session({config, config, config::LastStepAsAt(config.precision, 1), signals,
                          std::nullopt, path, backend, data, *graph, *policy, log, false, 1},
                         {});
  session.OpenLogs();
  CHECK(session.Run() == 0);
}

}  // namespace ada::backend::test
