// A whole run, with its logs, on a backend of the test's choice.
#pragma once
#include <doctest/doctest.h>

#include <string>

#include "config/load.h"
#include "train/run_session.h"

namespace ada::backend::test {

// Trains as `text` (a configuration) says; logs and checkpoints go to `path`.
inline void TrainOn(Backend& backend, const std::string& text, const config::Overrides& overrides,
                    const std::string& path) {
  config::Config config = config::LoadText(text, "run.yaml", overrides).config;
  config::FillDefaults(config);
  CHECK(testing::RunSession(backend, config, path) == 0);
}

}  // namespace ada::backend::test
