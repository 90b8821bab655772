// Whole runs on the CUDA backend, with their logs and checkpoints: the same bytes again, whether
// batches are made in backend memory or by the loader, and whether or not the run was interrupted.
#include <doctest/doctest.h>

#include <filesystem>
#include <sstream>

#include "config/load.h"
#include "cuda/on_both.h"
#include "train/assemble.h"
#include "train/batches.h"
#include "train/session.h"
#include "train/small_run.h"

namespace ada::backend::test {
namespace {

namespace fs = std::filesystem;

// kSmallNetwork for seven steps of two epochs, with `changes`: "key=value;key=value".
config::Config Small(const std::string& changes) {
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
void Train(config::Config config, const std::string& path, std::int64_t steps) {
  fs::create_directories(path);
  config::FillDefaults(config);
  config.train.max_steps = steps;
  const auto backend = MakeBackendUnderTest();
  telemetry::Log log(telemetry::LogLevel::kError);
  const train::RunData data = train::ReadData(config);
  const Shape image{1, data.train.height, data.train.width, data.train.channels};
  const auto policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(train::TrainGraph(config, image, *policy), *backend);
  const auto from = train::FindResumePoint(path + "/checkpoints", config, log);
  train::Session session({config, path, *backend, data, *graph, *policy, log, false, 1}, from);
  session.OpenLogs();
  CHECK(session.Run() == 0);
}

// All logs of `a` but times and `other`, and the weights, in `b` as well.
void CheckSameFiles(const std::string& a, const std::string& b, const std::string& other = "") {
  int compared = 0;
  for (const auto& entry : fs::recursive_directory_iterator(a)) {
    const std::string file = entry.path().lexically_relative(a).string();
    const bool numbers = file.ends_with(".csv") || file.ends_with(".safetensors");
    if (!numbers || file.ends_with("timing.csv") || file == other) continue;
    CAPTURE(file);
    CHECK(testing::ReadBytes(a + "/" + file) == testing::ReadBytes(b + "/" + file));
    ++compared;
  }
  CHECK(compared >= 5);
}

// Whether training images of such a run go to the device as bytes.
bool SendsBytes(config::Config config) {
  config::FillDefaults(config);
  const auto backend = MakeBackendUnderTest();
  const train::RunData data = train::ReadData(config);
  return train::Batches(*backend, data.train, train::TrainLoader(config, data)).as_bytes();
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("whole runs: the same bytes again, from the loader, and after an interruption") {
    for (const std::string changes :
         {"scaling.policy=adaptive;scaling.method=exact_range;train.accumulate=2",
          "scaling.policy=layerwise_dynamic;scaling.init_scale=16777216;scaling.growth_interval=3",
          "scaling.policy=none;precision.format=fp8_e5m2;precision.tensor_scaling.kind=delayed"}) {
      CAPTURE(changes);
      const testing::TempFolder folder;
      const std::string path = folder.path();
      Train(Small(changes), path + "/once", 7);
      Train(Small(changes), path + "/again", 7);
      CheckSameFiles(path + "/once", path + "/again");
      Train(Small(changes), path + "/halves", 4);
      Train(Small(changes), path + "/halves", 7);
      CheckSameFiles(path + "/once", path + "/halves", "evaluation.csv");
      CHECK(testing::HoldsEvaluations(path + "/halves", path + "/once"));
      // The probe of step 1 wants its images on the host: batches are the loader's in the whole
      // run.
      Train(Small(changes + ";log.probe_every=1000"), path + "/loader", 7);
      CheckSameFiles(path + "/once", path + "/loader", "underflow.csv");
    }
  }

  TEST_CASE("whole runs: images that the host colours go as bytes, and change no byte of a run") {
    const std::string coloured = "data.augment.color_jitter.brightness=0.4;scaling.policy=adaptive";
    for (const std::string& changes :
         {coloured, coloured + ";train.accumulate=2", coloured + ";data.workers=0"}) {
      CAPTURE(changes);
      REQUIRE(SendsBytes(Small(changes)));
      const testing::TempFolder folder;
      const std::string path = folder.path();
      Train(Small(changes), path + "/bytes", 7);
      Train(Small(changes), path + "/halves", 4);
      Train(Small(changes), path + "/halves", 7);
      CheckSameFiles(path + "/bytes", path + "/halves", "evaluation.csv");
      Train(Small(changes + ";log.probe_every=1000"), path + "/fp32", 7);
      CheckSameFiles(path + "/bytes", path + "/fp32", "underflow.csv");
    }
    CHECK_FALSE(SendsBytes(Small(coloured + ";data.augment.mixup.alpha=0.2")));
  }
}

}  // namespace ada::backend::test
