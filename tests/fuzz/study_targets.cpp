// The commands that look at a run whose record was tampered with.
#include <array>
#include <sstream>
#include <string>

#include "fuzz/scratch.h"
#include "fuzz/targets.h"
#include "judge/scenario.h"
#include "scaling/policies/policies.h"
#include "study/advise/recommendation.h"
#include "study/commands.h"
#include "study/compare/comparison.h"
#include "study/made_run.h"
#include "study/run_files.h"

namespace ada::fuzz {
namespace {

constexpr std::array<const char*, 6> kFiles = {"histograms.csv", "underflow.csv",  "steps.csv",
                                               "scales.csv",     "evaluation.csv", "events.csv"};

// A run of two steps and two layers that is as it should be.
class GoodRun {
 public:
  GoodRun() : run_("") {
    for (const std::int64_t step : {1, 2}) {
      for (const char* layer : {"conv1", "conv2"}) {
        for (const char* tensor : {"y", "dy", "dx", "dw"})
          run_.Add(step, layer, tensor, study::testing::Normal(-20, 20, 7));
      }
    }
    run_.Finish();
  }
  std::string path() const { return run_.path(); }

 private:
  study::testing::MadeRun run_;
};

judge::Scenario ScenarioOf(const std::string& policy, const config::ModelConfig& model) {
  config::WhatIfConfig question;
  if (policy.empty()) {
    question.format = kFp16;
  } else {
    question.scaling.emplace().policy = policy;
  }
  return {question, model};
}

// What the commands do after the configuration, which is read once: reading it would take most of
// the time.
void WhatIf(const std::string& folder, const config::Config& config, const std::string& policy) {
  judge::Scenario scenario = ScenarioOf(policy, config.model);
  study::EachHistogramStep(folder, study::ReadFormatHistory(folder, config),
                           [&](const study::HistogramStep& step) {
                             scenario.Judge(step.step, step.epoch, step.tensors);
                           });
}

void Compare(const std::string& good, const std::string& bad) {
  std::ostringstream out;
  const config::Config config_good = study::ReadRunConfig(good),
                       config_bad = study::ReadRunConfig(bad);
  study::PrintResults(study::ReadResults(good, config_good), study::ReadResults(bad, config_bad),
                      out);
  study::PrintLayers(study::ReadLayers(good), study::ReadLayers(bad), true, out);
  study::CompareRows(good, bad, "steps.csv");
  study::CompareRows(good, bad, "evaluation.csv", "top1");
  study::CompareLayerRows(good, bad, "scales.csv", 2);
  study::CompareLayerRows(good, bad, "underflow.csv", 2);
}

}  // namespace

// The first byte chooses the file, the command, and now and then the whole command.
void Study(std::string_view input) {
  static const GoodRun good, bad;
  static const ada::testing::TempFolder kept;
  static const config::Config config = study::ReadRunConfig(good.path());
  const unsigned choice = TakeByte(&input);
  const std::string name = kFiles[choice % 8 % kFiles.size()];
  namespace fs = std::filesystem;
  const std::string folder = bad.path(), path = folder + "/" + name;
  fs::copy_file(good.path() + "/" + name, kept / name, fs::copy_options::overwrite_existing);
  { std::ofstream(path, std::ios::binary) << input; }
  std::ostringstream out;
  Refusable([&] {
    switch (choice / 8) {
      case 0:
        study::CollectNeeds(folder, study::ReadFormatHistory(folder, config), 1e-3);
        break;
      case 1:
        Compare(good.path(), folder);
        break;
      case 2:
        WhatIf(folder, config, "dynamic");
        break;
      case 3:
        WhatIf(folder, config, "adaptive");
        break;
      case 4:
        study::Recommend({.folder = folder}, out);
        break;
      case 5:
        study::Compare(good.path(), folder, out);
        break;
      default:
        WhatIf(folder, config, "");
        break;
    }
  });
  fs::copy_file(kept / name, path, fs::copy_options::overwrite_existing);
}

void Replay(std::string_view input) {
  static const Scratch scratch;
  const unsigned choice = TakeByte(&input);
  const std::string path = scratch.Write("trace.csv", input);
  scaling::Settings settings;
  settings.policy = choice % 2 == 0 ? "dynamic" : "logmax";
  scaling::FillDefaults(settings);
  const auto policy = scaling::MakePolicy(settings);
  study::ReplayOptions options;
  options.trace = path;
  options.max_retries = choice / 2 % 3;
  options.view = choice / 8 % 2 == 0 ? study::View::kCsv : study::View::kTable;
  std::ostringstream out, notes;
  Refusable([&] { study::Replay(*policy, options, out, notes); });
}

}  // namespace ada::fuzz
