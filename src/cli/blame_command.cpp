// blame, assign: forks of a training that tell which formats it bears.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "run/evaluate/weights.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// The arguments of the command line before they are checked; Blame converts words to enums.
struct BlameArguments {
  study::BlameOptions options;
  std::string metric = "loss", by = "layer";
  std::optional<std::int64_t> steps;
  std::optional<int> threads;
  ViewFlags view;
};

// Forks read the data of the run again.
void CheckPicture(const study::BlameOptions& options) {
  if (options.picture.empty()) return;
  OutputPaths paths;
  paths.Write("--picture", options.picture);
  paths.Check();
  const std::string checkpoint = run::CheckpointOfRun(options.folder, /*best=*/false);
  ConfigArguments own;
  paths.ReadCheckpoint("RUN_DIR", checkpoint);
  paths.ReadConfig(FilledConfigOf(own, checkpoint));
  paths.Check();
}

// Throws ConfigError for words and numbers that are none of those expected, before a run is opened.
int Blame(BlameArguments& a) {
  using Options = study::BlameOptions;
  if (a.metric != "loss" && a.metric != "gradient")
    throw ConfigError("--metric " + a.metric + ": expected loss or gradient");
  if (a.by != "layer" && a.by != "block" && a.by != "tensor")
    throw ConfigError("--by " + a.by + ": expected layer, block or tensor");
  a.options.metric = a.metric == "loss" ? Options::Metric::kLoss : Options::Metric::kGradient;
  a.options.by = a.by == "layer"   ? Options::By::kLayer
                 : a.by == "block" ? Options::By::kBlock
                                   : Options::By::kTensor;
  // Losses need some steps to part; the gradients of one step show differences at once.
  a.options.steps = a.steps.value_or(a.metric == "loss" ? 20 : 1);
  Checked(static_cast<double>(a.options.steps), 1, 1e6, "--steps", "a whole number, 1 to 1000000");
  if (a.threads) Checked(*a.threads, 1, 1024, "--threads", "a whole number, 1 to 1024");
  a.options.threads = a.threads.value_or(0);
  a.options.view = a.view.View();
  CheckPicture(a.options);
  // The result goes to stdout; of the forks' messages only warnings are shown.
  telemetry::Log log(telemetry::LogLevel::kWarning);
  study::Blame(a.options, std::cout, log);
  return 0;
}

// The budget is a text, since it may end in a percent sign.
struct AssignArguments : ConfigArguments {
  std::string file, budget = "0.1%", yaml;
  std::vector<std::string> formats;
  std::int64_t steps = 50;
  bool json = false;
};

int Assign(AssignArguments& a) {
  // FILE after --set is taken for one of its values; RequireOperand finds it there.
  if (a.config.empty()) RequireOperand(a.file, a.set, "FILE", "assign");
  TakeFile(a, a.file);
  study::AssignOptions options;
  for (const std::string& format : WholeFormats(a.formats)) {
    options.formats.push_back(config::ReadTensorFormat("--formats", format));
    const auto last = options.formats.end() - 1;
    if (std::find(options.formats.begin(), last, *last) != last)
      throw ConfigError("--formats: " + format + " is named twice; expected each format once");
  }
  options.budget = ShareOf("--budget", a.budget);
  options.steps = a.steps;
  options.yaml = a.yaml;
  options.json = a.json;
  Checked(static_cast<double>(a.steps), 0, 1e6, "--steps", "a whole number, 0 to 1000000");
  options.config = FilledConfigOf(a);
  OutputPaths paths;
  paths.Read("FILE", a.config);
  paths.ReadConfig(options.config);
  paths.Write("--yaml", a.yaml);
  paths.Check();
  telemetry::Log log(telemetry::LogLevel::kWarning);
  study::Assign(options, std::cout, log);
  return 0;
}

// FILE or --config names the experiment; its precision says how block-scaled layers are stored.
Command AddAssign(CLI::App& app) {
  auto a = std::make_shared<AssignArguments>();
  CLI::App* assign =
      Add(app, "assign", "the cheapest format for each layer within a budget of gradient error",
          "  ada-train assign configs/lenet_fashion.yaml --formats fp8_e5m2,fp16 --budget 1%\n"
          "  ada-train assign mine.yaml --formats fp16,bf16 --steps 200 --yaml formats.yaml\n"
          "  ada-train assign mine.yaml --formats bf16,nvfp4 --budget 5%");
  assign->add_option("FILE", a->file, "the experiment (YAML or JSON)")->type_name("");
  assign->add_option("-c,--config", a->config, "the same as FILE")->type_name("FILE");
  assign
      ->add_option("--formats", a->formats,
                   "to choose from, block-scaled ones too; fp32 is always there")
      ->type_name("F,F")
      ->delimiter(',')
      ->allow_extra_args(false)  // FILE may come after it
      ->required();
  assign->add_option("--budget", a->budget, "of the weight gradients' error (default 0.1%)")
      ->type_name("SHARE");
  assign->add_option("--steps", a->steps, "of the training that proves it (default 50; 0: none)")
      ->type_name("N");
  assign->add_option("--yaml", a->yaml, "write the section there, for train --with")
      ->type_name("FILE");
  AddJson(*assign, a->json);
  AddOverrides(*assign, *a, DataAndMachineOptions());
  return {assign, [a] { return Assign(*a); }};
}

}  // namespace

Commands AddBlameCommands(CLI::App& app) {
  auto a = std::make_shared<BlameArguments>();
  CLI::App* blame = Add(app, "blame", "which layer's format changes what a training does",
                        "  ada-train blame runs/fashion_quickstart --metric gradient\n"
                        "  ada-train blame runs/fashion_quickstart --by tensor --steps 5 --csv");
  blame->add_option("RUN_DIR", a->options.folder, "a run with a checkpoint, also a finished one")
      ->type_name("")
      ->required();
  blame
      ->add_option("--metric", a->metric,
                   "loss (default), over some steps; gradient: weight gradients, of one step")
      ->type_name("WHAT");
  blame->add_option("--steps", a->steps, "steps of each fork (default: loss 20, gradient 1)")
      ->type_name("N");
  blame->add_option("--by", a->by, "layer (default), block, or tensor: one kind in all layers")
      ->type_name("WHAT");
  blame->add_option("--threads", a->threads, "instead of the run's")->type_name("N");
  blame->add_option("--picture", a->options.picture, "an SVG of the ranking")->type_name("FILE");
  AddView(*blame, a->view);
  AddJson(*blame, a->view.json);
  return {{blame, [a] { return Blame(*a); }}, AddAssign(app)};
}

}  // namespace ada::cli
