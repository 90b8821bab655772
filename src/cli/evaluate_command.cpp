// evaluate: of a run's folder, a checkpoint, or plain weights.
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "run/evaluate/evaluation_commands.h"
#include "run/evaluate/weights.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// RUN may be given as an operand or by --checkpoint.
struct EvaluateArguments : ConfigArguments {
  std::string run, checkpoint;
  bool best = false, no_progress = false;
  run::EvaluateOptions options;
};

// The file that is evaluated.
// A folder stands for its newest or best checkpoint, which a line of the log names.
std::string CheckpointOf(const EvaluateArguments& a, telemetry::Log& log) {
  if (!IsFolder(a.run)) {
    if (a.best)
      throw ConfigError("--best: " + a.run +
                        " is no folder; expected that of a run, whose best "
                        "checkpoint is taken");
    return a.run;
  }
  std::string path = run::CheckpointOfRun(a.run, a.best);
  log.Info("evaluating " + path);
  return path;
}

// Before the network is built: an evaluation may take long, and its output must not replace its
// input.
void CheckEvaluateOutputs(const EvaluateArguments& a, const std::string& checkpoint,
                          const config::Config& config) {
  OutputPaths paths;
  paths.ReadCheckpoint("RUN", checkpoint);
  paths.Read("--config", a.config);
  paths.ReadConfig(config);
  paths.Write("--predictions", a.options.predictions);
  paths.Write("--outputs", a.options.outputs);
  paths.Check();
}

// Without RUN and with --config the network is evaluated as model.init leaves it. Throws
// ConfigError where neither is given, and what run::Evaluate throws.
int Evaluate(EvaluateArguments& a) {
  // RUN after --set is taken for one of its values.
  if (a.checkpoint.empty()) TakeOperand(a.run, a.set);
  if (!a.run.empty() && !a.checkpoint.empty())
    throw ConfigError(a.run + " and --checkpoint " + a.checkpoint + ": expected one of them");
  if (a.run.empty()) a.run = a.checkpoint;
  if (a.run.empty() && a.config.empty())
    throw ConfigError(
        "RUN is missing: a run's folder, or --checkpoint FILE, or --config FILE alone for the "
        "network as it starts; `ada-train help evaluate` shows examples");
  if (a.run.empty() && a.best)
    throw ConfigError("--best: expected the folder of a run, whose best checkpoint is taken");
  a.options.progress = !a.no_progress;
  telemetry::Log log;
  const std::string checkpoint = a.run.empty() ? "" : CheckpointOf(a, log);
  const config::Config config = EvaluatedConfigOf(a, checkpoint);
  CheckEvaluateOutputs(a, checkpoint, config);
  run::Evaluate(config, checkpoint, a.options, std::cout, log);
  return 0;
}

}  // namespace

// With a configuration of its own the weights need not be a checkpoint.
Commands AddEvaluateCommands(CLI::App& app) {
  auto a = std::make_shared<EvaluateArguments>();
  CLI::App* evaluate = Add(app, "evaluate", "loss and metrics of a checkpoint, as CSV",
                           "  ada-train evaluate runs/fashion_quickstart --best\n"
                           "  ada-train evaluate weights.safetensors --config "
                           "configs/resnet20_cifar.yaml --outputs outputs.safetensors");
  evaluate
      ->add_option("RUN", a->run,
                   "a run's folder, whose newest checkpoint is taken; either file of a\n"
                   "checkpoint; or, with --config, weights alone (safetensors).\n"
                   "Missing, with --config: the network as model.init leaves it")
      ->type_name("");
  evaluate->add_option("--checkpoint", a->checkpoint, "the same as RUN")->type_name("RUN");
  evaluate->add_flag("--best", a->best, "of a folder: the best checkpoint instead of the newest");
  evaluate
      ->add_option("-c,--config", a->config,
                   "the experiment (YAML or JSON), instead of the checkpoint's own")
      ->type_name("FILE");
  std::vector<ShortOption> shorts = DataOptions();
  for (const ShortOption& option : MachineOptions()) shorts.push_back(option);
  AddOverrides(*evaluate, *a, shorts);
  evaluate
      ->add_option("--predictions", a->options.predictions,
                   "also write a CSV with one row an image: label, prediction,\n"
                   "probabilities, loss and the label's rank. Segmentation, detection:\n"
                   "a folder of label images and overlays, or of detections.csv and\n"
                   "pictures with boxes")
      ->type_name("PATH");
  evaluate
      ->add_option("--outputs", a->options.outputs,
                   "also write what the network gives for each image of split test,\n"
                   "in the order of the files: tensor `outputs`, fp32 [images, classes].\n"
                   "Language: [sequences, tokens, vocabulary], of split validation\n"
                   "where there is no split test")
      ->type_name("FILE");
  evaluate->add_flag("--per-class", a->options.per_class,
                     "a row a class, with its precision, instead of a row a split");
  evaluate->add_flag("--no-progress", a->no_progress, "no progress line");
  return {{evaluate, [a] { return Evaluate(*a); }}};
}

}  // namespace ada::cli
