// predict: single photos, by the weights of a run, a checkpoint, or a file of weights.
#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "run/evaluate/evaluation_commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// Photos are files or folders; run::Predict lists the folders.
struct PredictArguments : ConfigArguments {
  std::vector<std::string> photos;
  std::string checkpoint;
  bool best = false, csv = false, json = false;
  run::PredictOptions options;
};

// --set takes all that follows it, photos too.
void TakePhotos(PredictArguments& a) {
  for (std::string photo; TakeOperand(photo, a.set), !photo.empty(); photo.clear())
    a.photos.push_back(photo);
}

// Then the checkpoint's own data set is not the one that is asked for.
// A checkpoint knows sizes, means and class names of its data; keys of `data` ask for others.
bool ChangesData(const config::Overrides& overrides) {
  return std::any_of(overrides.begin(), overrides.end(), [](const auto& override) {
    return override.first == "data" || override.first.starts_with("data.");
  });
}

// Photos may lie in the folder that is written to, so each of them is checked.
void CheckPredictOutputs(const PredictArguments& a, const std::string& checkpoint,
                         const config::Config& config) {
  OutputPaths paths;
  paths.ReadCheckpoint("--checkpoint", checkpoint);
  paths.Read("--config", a.config);
  paths.ReadConfig(config);
  for (const std::string& photo : a.photos) paths.Read("PHOTO", photo);
  paths.Write("--predictions", a.options.predictions);
  paths.Check();
}

// Throws ConfigError for options that are missing or exclude each other, then what run::Predict
// throws.
int Predict(PredictArguments& a) {
  if (a.photos.empty()) TakePhotos(a);
  if (a.photos.empty())
    throw ConfigError(
        "PHOTO is missing: JPEG, PNG or WebP files, or folders; `ada-train help predict` shows "
        "examples");
  if (a.checkpoint.empty())
    throw ConfigError(
        "--checkpoint is missing: a run's folder, a checkpoint's file, or weights with --config");
  if (a.csv && a.json) throw ConfigError("--csv and --json: expected one of them");
  if (a.options.top < 1) throw ConfigError("--top: expected 1 or more");
  if (a.csv) a.options.format = run::PredictFormat::kCsv;
  if (a.json) a.options.format = run::PredictFormat::kJson;
  // Looked up before the configuration, which may be that of the checkpoint.
  const std::string path = WeightsAt(a.checkpoint, a.best);
  const config::Config config = EvaluatedConfigOf(a, path);
  CheckPredictOutputs(a, path, config);
  // Otherwise the checkpoint's own data set says sizes and class names, and need not be there.
  a.options.asks_data = !a.config.empty() || ChangesData(OverridesOf(a.set));
  telemetry::Log log;
  run::Predict(config, path, a.photos, a.options, std::cout, log);
  return 0;
}

}  // namespace

Commands AddPredictCommands(CLI::App& app) {
  auto a = std::make_shared<PredictArguments>();
  CLI::App* predict = Add(app, "predict", "the likeliest classes of single photos",
                          "  ada-train predict cat.jpg dog.png --checkpoint runs/photos --best\n"
                          "  ada-train predict photos/ --checkpoint runs/photos --csv");
  predict
      ->add_option("PHOTO", a->photos,
                   "JPEG, PNG or WebP files, or folders of them; of several photos those\n"
                   "that cannot be read are left out with a line")
      ->type_name("");
  predict
      ->add_option("--checkpoint", a->checkpoint,
                   "a run's folder, whose newest checkpoint is taken; either file of a\n"
                   "checkpoint; or, with --config, weights alone (safetensors)")
      ->type_name("FILE");
  predict->add_flag("--best", a->best, "of a folder: the best checkpoint instead of the newest");
  predict
      ->add_option("-c,--config", a->config,
                   "the experiment (YAML or JSON), instead of the checkpoint's own; sizes and\n"
                   "names then come from its data set, as with --data and --set data...")
      ->type_name("FILE");
  // --device, --threads, --data and --format are short for keys, as in train and evaluate.
  std::vector<ShortOption> shorts = DataOptions();
  for (const ShortOption& option : MachineOptions()) shorts.push_back(option);
  AddOverrides(*predict, *a, shorts);
  predict->add_option("--top", a->options.top, "classes to name; default: 5")->type_name("N");
  predict->add_flag("--csv", a->csv, "photo,rank,class,name,probability");
  predict
      ->add_option("--predictions", a->options.predictions,
                   "segmentation, detection: also write label images and overlays, or\n"
                   "detections.csv and pictures with boxes")
      ->type_name("FOLDER");
  predict->add_flag("--json", a->json, "a list with one map a photo");
  return {{predict, [a] { return Predict(*a); }}};
}

}  // namespace ada::cli
