// train and evaluate: what needs a configuration.
#include <iostream>
#include <memory>

#include "cli/commands.h"
#include "config/load.h"
#include "core/error.h"
#include "telemetry/log.h"
#include "train/run.h"

namespace ada::cli {
namespace {

struct ConfigArguments {
  std::string config, device;
  std::vector<std::string> set;
  int threads = -1;
};

struct TrainArguments : ConfigArguments {
  std::string output, name, log_level = "info";
  bool resume = false, overwrite = false, dry_run = false, print_config = false;
  bool quiet = false, verbose = false, no_progress = false;
};

struct EvaluateArguments : ConfigArguments {
  std::string checkpoint;
  train::EvaluateOptions options;
};

void AddConfigOptions(CLI::App& app, ConfigArguments& a) {
  app.add_option("--config", a.config, "the experiment (YAML or JSON)")->type_name("FILE");
  AddSet(app, a.set, "--set scaling.policy=fixed --set scaling.scale=1024");
  app.add_option("--device", a.device, "auto, cpu, cuda or cuda:1")->type_name("DEVICE");
  app.add_option("--threads", a.threads, "threads of the CPU backend; 0: one per core")
      ->type_name("N");
}

void AddTrainOptions(CLI::App& app, TrainArguments& a) {
  AddConfigOptions(app, a);
  app.add_option("--output", a.output, "the run's folder (default: runs/NAME)")->type_name("DIR");
  app.add_option("--name", a.name, "the run's name (default: the file's name)")->type_name("NAME");
  auto* resume =
      app.add_flag("--resume", a.resume, "go on from the newest good checkpoint, or start");
  app.add_flag("--overwrite", a.overwrite, "delete the old run in the folder first")
      ->excludes(resume);
  app.add_flag("--dry-run", a.dry_run,
               "check config and data, print layers and memory; train nothing");
  app.add_flag("--print-config", a.print_config, "print the resolved configuration and stop");
  app.add_flag("--quiet", a.quiet, "warnings and errors only");
  app.add_flag("--verbose", a.verbose, "what --log-level debug shows");
  app.add_flag("--no-progress", a.no_progress, "no progress line");
  app.add_option("--log-level", a.log_level, "trace, debug, info, warning or error")
      ->type_name("LEVEL");
}

void OverrideWord(config::Overrides& overrides, const char* key, const std::string& text) {
  if (!text.empty()) overrides.emplace_back(key, config::YamlText(text));
}

void OverrideDevice(config::Overrides& overrides, const ConfigArguments& a) {
  OverrideWord(overrides, "device.kind", a.device);
  if (a.threads >= 0) overrides.emplace_back("device.threads", std::to_string(a.threads));
}

// --set in its order, then the options that are short for a key.
config::Overrides TrainOverrides(const TrainArguments& a) {
  config::Overrides overrides = OverridesOf(a.set);
  OverrideWord(overrides, "name", a.name);
  OverrideWord(overrides, "output", a.output);
  OverrideDevice(overrides, a);
  return overrides;
}

telemetry::LogLevel LevelOf(const TrainArguments& a) {
  if (a.quiet) return telemetry::LogLevel::kWarning;
  if (a.verbose) return telemetry::LogLevel::kDebug;
  return telemetry::ParseLogLevel(a.log_level);
}

int Train(const TrainArguments& a) {
  if (a.config.empty())
    throw ConfigError("--config FILE is missing; `ada-train --help` shows examples");
  telemetry::Log log(LevelOf(a));
  config::Loaded loaded = config::Load(a.config, TrainOverrides(a));
  config::FillDefaults(loaded.config);
  for (const std::string& note : loaded.notes) log.Info(note);
  if (a.print_config) {
    std::cout << config::ToYaml(loaded.config);
    return 0;
  }
  if (a.dry_run) {
    train::DryRun(loaded.config, std::cout);
    return 0;
  }
  return train::Train(loaded.config, {a.resume, a.overwrite, !a.no_progress && !a.quiet}, log);
}

int Evaluate(const EvaluateArguments& a) {
  config::Overrides overrides = OverridesOf(a.set);
  OverrideDevice(overrides, a);
  config::Loaded loaded = a.config.empty() ? config::LoadText(train::CheckpointConfig(a.checkpoint),
                                                              a.checkpoint + " (config)", overrides)
                                           : config::Load(a.config, overrides);
  config::FillDefaults(loaded.config);
  train::Evaluate(loaded.config, a.checkpoint, a.options, std::cout);
  return 0;
}

Command AddTrain(CLI::App& app) {
  auto a = std::make_shared<TrainArguments>();
  CLI::App* train = Add(app, "train", "train (the same as giving no command)",
                        "  ada-train train --config configs/resnet20_cifar.yaml --resume\n"
                        "  ada-train train --config configs/resnet20_cifar.yaml --dry-run");
  AddTrainOptions(app, *a);
  AddTrainOptions(*train, *a);
  return {train, [a] { return Train(*a); }};
}

Command AddEvaluate(CLI::App& app) {
  auto a = std::make_shared<EvaluateArguments>();
  CLI::App* evaluate =
      Add(app, "evaluate", "loss, top-1 and top-5 of a checkpoint, as CSV",
          "  ada-train evaluate --checkpoint runs/fashion_quickstart/checkpoints/best.safetensors\n"
          "  ada-train evaluate --checkpoint runs/a/checkpoints/step-00001950.json --set "
          "data.path=/data/cifar-10");
  AddConfigOptions(*evaluate, *a);
  evaluate->add_option("--checkpoint", a->checkpoint, "either file of a checkpoint")
      ->type_name("FILE")
      ->required();
  evaluate
      ->add_option("--predictions", a->options.predictions,
                   "also write a CSV with one row an image: label, prediction, probabilities,\n"
                   "loss and the label's rank")
      ->type_name("FILE");
  evaluate->add_flag("--per-class", a->options.per_class,
                     "a row a class, with its precision, instead of a row a split");
  return {evaluate, [a] { return Evaluate(*a); }};
}

}  // namespace

Commands AddTrainCommands(CLI::App& app) { return {AddTrain(app), AddEvaluate(app)}; }

}  // namespace ada::cli
