// Whole runs of a small network on the backend under test, with their logs and checkpoints.
#pragma once
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>
#include <string>

#include "config/load.h"
#include "cuda/on_both.h"
#include "train/run_session.h"
#include "train/small_run.h"

namespace ada::backend::test {

// kSmallNetwork for seven steps of two epochs, with `changes`: "key=value;key=value".
inline config::Config Small(const std::string& changes) {
  const std::string text = std::string(testing::kSmallNetwork) +
                           "name: small\nseed: 3\ntrain: {max_steps: 7}\ncheckpoint: {every_steps: "
                           "4}\nlog: {every: 3}\n";
  config::Overrides overrides;
  std::istringstream lines(changes);
  for (std::string line; std::getline(lines, line, ';');)
    overrides.emplace_back(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  return config::LoadText(text, "small.yaml", overrides).config;
}

// Trains up to `steps`, in a folder that is empty or holds the run's beginning.
inline void Train(config::Config config, const std::string& path, std::int64_t steps,
                  Backend& backend) {
  config::FillDefaults(config);
  config.train.max_steps = steps;
  CHECK(testing::RunSession(backend, config, path) == 0);
}
inline void Train(const config::Config& config, const std::string& path, std::int64_t steps) {
  Train(config, path, steps, *MakeBackendUnderTest());
}

// All logs of `a` but times and `other`, and the weights, in `b` as well.
inline void CheckSameFiles(const std::string& a, const std::string& b,
                           const std::string& other = "") {
  int compared = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(a)) {
    const std::string file = entry.path().lexically_relative(a).string();
    const bool numbers = file.ends_with(".csv") || file.ends_with(".safetensors");
    if (!numbers || file.ends_with("timing.csv") || file == other) continue;
    CAPTURE(file);
    CHECK(testing::ReadBytes(a + "/" + file) == testing::ReadBytes(b + "/" + file));
    ++compared;
  }
  CHECK(compared >= 5);
}

}  // namespace ada::backend::test
