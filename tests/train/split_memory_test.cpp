// Whole runs on a backend whose memory people do not see: same logs and checkpoints as on the CPU,
// under every kind of policy, and one wait a step.
#include "train/split_memory.h"

#include <filesystem>

#include "config/load.h"
#include "train/run_session.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

// Trains in the empty folder `path`, in this process; with `half`, as two runs of which the second
// resumes.
void TrainOn(backend::Backend& backend, config::Config config, const std::string& path, bool half) {
  const std::int64_t steps = config.train.max_steps;
  config.train.max_steps = steps / 2;
  if (half) CHECK(RunSession(backend, config, path) == 0);
  config.train.max_steps = steps;
  CHECK(RunSession(backend, config, path) == 0);
}

// All logs but times, and the weights.
void CheckSameFiles(const std::string& a, const std::string& b) {
  int compared = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(a)) {
    const std::string file = entry.path().lexically_relative(a).string();
    const bool numbers = file.ends_with(".csv") || file.ends_with(".safetensors");
    if (!numbers || file.ends_with("timing.csv")) continue;
    CAPTURE(file);
    CHECK(ReadBytes(a + "/" + file) == ReadBytes(b + "/" + file));
    ++compared;
  }
  CHECK(compared >= 5);
}

config::Config Small(const std::string& changes) {
  const std::string text = std::string(kSmallNetwork) + R"(
name: small
seed: 3
train: {epochs: 2, max_steps: 12}
checkpoint: {every_steps: 6, best: false}
log: {every: 4, histogram_every: 6}
)";
  config::Overrides overrides;
  std::istringstream lines(changes);
  for (std::string line; std::getline(lines, line, ';');)
    overrides.emplace_back(line.substr(0, line.find('=')), line.substr(line.find('=') + 1));
  config::Config config = config::LoadText(text, "small.yaml", overrides).config;
  config::FillScalingDefaults(config.scaling, config.train);
  return config;
}

TEST_SUITE("cpu") {
  TEST_CASE("runs on a backend with memory of its own: the same bytes") {
    struct Case {
      const char *changes, *event;  // what must happen
    };
    const Case cases[] = {
        {"scaling.policy=adaptive;scaling.method=exact_range;scaling.init_scale=0.001", ""},
        {"scaling.policy=adaptive;scaling.update_interval=3;train.accumulate=2", ""},
        {"scaling.policy=layerwise_dynamic;scaling.init_scale=16777216;scaling.growth_interval=3",
         "skip"},
        {"scaling.policy=layerwise_dynamic;scaling.init_scale=16777216;train.accumulate=2", "skip"},
        {"scaling.policy=dynamic;scaling.init_scale=67108864;scaling.growth_interval=3", "skip"},
        {"scaling.policy=dynamic;scaling.preset=marian;scaling.init_scale=33554432;"
         "scaling.min_scale=33554432;train.clip_norm=1",
         "sanitize"},
        {"scaling.policy=logmax", ""},
        {"scaling.policy=histogram;scaling.update_period=4", "scale_change"},
        {"scaling.policy=dynamic;log.probe_every=5;train.accumulate=2", ""},
        {"scaling.policy=none;precision.format=fp8_e4m3;precision.tensor_scaling.kind=delayed",
         ""}};
    for (const auto& [changes, event] : cases) {
      CAPTURE(changes);
      const config::Config config = Small(changes);
      const TempFolder folder;
      const auto cpu = backend::cpu::MakeCpuBackend(2);
      SplitMemory split(2);
      for (const bool half : {false, true}) {
        const std::string a = folder.path() + (half ? "/a2" : "/a"), b = a + "-split";
        std::filesystem::create_directories(a), std::filesystem::create_directories(b);
        TrainOn(*cpu, config, a, half);
        TrainOn(split, config, b, half);
        CheckSameFiles(a, b);
        CHECK(Contains(ReadBytes(a + "/events.csv"), event));
      }
    }
  }

  TEST_CASE("a step waits once, or once for each of several micro-batches") {
    // Each of the two checkpoints waits for the layers' scalers, then for the tensors. Scales that
    // a policy has for its layers are set in the first step, among scalers that are fetched for it.
    const int checkpoints = 2 * 2, first_scales = 1;
    const std::pair<const char*, int> cases[] = {
        {"scaling.policy=dynamic", 12},
        {"scaling.policy=layerwise_dynamic", 12 + first_scales},
        {"scaling.policy=dynamic;train.accumulate=2", 24}};
    for (const auto& [changes, waits] : cases) {
      CAPTURE(changes);
      SplitMemory split(1);
      const TempFolder folder;
      TrainOn(split, Small(changes), folder.path(), false);
      CHECK(split.waits() == waits + checkpoints);
    }
  }
}

}  // namespace
}  // namespace ada::testing
