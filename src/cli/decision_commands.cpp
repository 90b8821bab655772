// choose, ablate, mismatch, blame, assign: what trains or runs a network to tell which formats it
// bears.
#include <algorithm>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "run/evaluate/weights.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// The budget is a text, since it may end in a percent sign.
struct ChooseArguments : ExperimentArguments {
  std::string budget = "1%";
  std::vector<std::string> formats;
  study::ChooseOptions options;
};
struct AblateArguments : ExperimentArguments {
  study::AblateOptions options;
};

// Checks what both commands have, and finds the file, which may be a shipped one.
void TakeTrainings(ExperimentArguments& a, study::ArmsOptions& options,
                   const std::string& command) {
  TakeExperiment(a, "CONFIG", command);
  Checked(options.seeds, 1, 64, "--seeds", "a whole number, 1 to 64");
  Checked(options.steps, 0, 1e9, "--steps", "a whole number from 1 on");
  Checked(options.jobs, 0, 1024, "--jobs", "a whole number, 1 to 1024");
  ConfigOf(a);  // arms are laid over it later
  options.config = a.config;
  options.keys = OverridesOf(a.set);
  for (const config::Override& key : options.keys)
    if (key.first == "output" || key.first == "name" || key.first == "train.max_steps")
      throw ConfigError("--set " + key.first + ": " + command + " itself sets it (--out, --steps)");
}

int Choose(ChooseArguments& a) {
  a.options.formats = WholeFormats(a.formats);
  a.options.budget = ShareOf("--budget", a.budget);
  TakeTrainings(a, a.options, "choose");
  telemetry::Log log;
  return study::Choose(a.options, std::cout, log);
}

int Ablate(AblateArguments& a) {
  TakeTrainings(a, a.options, "ablate");
  telemetry::Log log;
  return study::Ablate(a.options, std::cout, log);
}

// folder: where --out is by default.
void AddTrainings(CLI::App& command, ExperimentArguments& a, study::ArmsOptions& options,
                  const std::string& folder) {
  AddExperiment(command, a, "CONFIG");
  AddValue(command, "--seeds", options.seeds, "N", "trainings of each arm (3)");
  AddValue(command, "--steps", options.steps, "N", "of each training (default: CONFIG's)");
  AddValue(command, "-j,--jobs", options.jobs, "J", "trainings at a time (default: one per core)");
  AddValue(command, "--out", options.out, "FOLDER",
           "the folder of all runs; the same command goes on in it (default: " + folder + "/NAME)");
  AddJson(command, options.json);
  AddOverrides(command, a, {DataOptions().front(), MachineOptions().front()});
}

struct MismatchArguments : ConfigArguments {
  std::vector<std::string> precision;
  bool best = false, no_layers = false;
  ViewFlags view;
  study::MismatchOptions options;
};

// The keys of a side: of a file those of precision alone, since both sides have one network and see
// the same data.
config::Overrides KeysOfSide(const std::string& word) {
  config::Overrides keys = study::KeysOfArm("--precision", word);
  const auto is_other = [](const config::Override& key) {
    return key.first != "precision" && !key.first.starts_with("precision.");
  };
  const auto other = std::find_if(keys.begin(), keys.end(), is_other);
  if (other == keys.end() || other->where.line == 0) return keys;  // a word has scaling beside it
  const std::string first = other->first.substr(0, other->first.find('.'));
  std::erase_if(keys, is_other);
  if (keys.empty())
    throw ConfigError(
        "--precision " + word +
        ": has no key of precision; expected some, such as precision: {format: bf16}");
  std::cerr << word << ": " << first
            << " and what else is beside precision counts for nothing here\n";
  return keys;
}

// The configuration with the keys of an arm before those of --set.
config::Config SideOf(const MismatchArguments& a, const std::string& word,
                      const std::string& weights) {
  ConfigArguments side = a;
  return EvaluatedConfigOf(side, weights, KeysOfSide(word));
}

void TakeNetwork(MismatchArguments& a) {
  study::MismatchOptions& options = a.options;
  if (a.precision.size() != 2)
    throw ConfigError("--precision: got " + std::to_string(a.precision.size()) +
                      "; expected two, --precision A --precision B");
  if (options.paths.size() > 1)
    throw ConfigError(options.paths[1] + ": --precision is for the weights of one network");
  if (options.paths.empty() && a.config.empty())
    throw ConfigError(
        "CHECKPOINT is missing: a run's folder, or a file of weights with --config, "
        "or --config alone for the network as it starts");
  if (!options.twin.empty()) throw ConfigError("--twin: is for files of predictions");
  if (!options.paths.empty()) options.paths.front() = WeightsAt(options.paths.front(), a.best);
  const std::string weights = options.paths.empty() ? "" : options.paths.front();
  for (const std::string& word : a.precision) {
    const config::Config side = SideOf(a, word, weights);
    options.precision.push_back(side.precision);
    if (options.precision.size() == 1) options.config = side;
  }
  options.sides = a.precision;
}

int Mismatch(MismatchArguments& a) {
  study::MismatchOptions& options = a.options;
  Checked(options.samples, 1, 1e9, "--samples", "a whole number from 1 on");
  options.layers = !a.no_layers;
  options.view = a.view.View();
  if (a.precision.empty()) {
    if (options.paths.size() != 2)
      throw ConfigError("mismatch: got " + std::to_string(options.paths.size()) +
                        " files and no --precision; expected A.safetensors B.safetensors, or "
                        "CHECKPOINT with --precision twice");
    options.sides = options.paths;
  } else {
    TakeNetwork(a);
  }
  OutputPaths paths;
  for (const std::string& path : options.paths) paths.Read("the input", path);
  paths.Write("--picture", options.picture);
  paths.Check();
  telemetry::Log log;
  study::Mismatch(options, std::cout, log);
  return 0;
}

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
  Checked(a.options.steps, 1, 1e6, "--steps", "a whole number, 1 to 1000000");
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
struct AssignArguments : ExperimentArguments {
  std::string budget = "0.1%";
  std::vector<std::string> formats;
  study::AssignOptions options;
};

int Assign(AssignArguments& a) {
  TakeExperiment(a, "FILE", "assign");
  study::AssignOptions& options = a.options;
  for (const std::string& format : WholeFormats(a.formats)) {
    options.formats.push_back(config::ReadTensorFormat("--formats", format));
    const auto last = options.formats.end() - 1;
    if (std::find(options.formats.begin(), last, *last) != last)
      throw ConfigError("--formats: " + format + " is named twice; expected each format once");
  }
  options.budget = ShareOf("--budget", a.budget);
  Checked(options.steps, 0, 1e6, "--steps", "a whole number, 0 to 1000000");
  options.config = FilledConfigOf(a);
  OutputPaths paths;
  paths.Read("FILE", a.config);
  paths.ReadConfig(options.config);
  paths.Write("--yaml", options.yaml);
  paths.Check();
  telemetry::Log log(telemetry::LogLevel::kWarning);
  study::Assign(options, std::cout, log);
  return 0;
}

Command AddChoose(CLI::App& app) {
  auto a = std::make_shared<ChooseArguments>();
  CLI::App* choose =
      Add(app, "choose", "which format, recipe or policy to train in: trains them all, and says",
          "  ada-train choose configs/gpt2_jargon_quick.yaml --formats bf16,te_mxfp8 --seeds 1\n"
          "  ada-train choose mine.yaml --formats fp16+dynamic,te_fp8_current --seeds 1 --html");
  AddTrainings(*choose, *a, a->options, "choices");
  AddValue(*choose, "--formats", a->formats, "ARM,ARM",
           "the arms: formats, recipes, either with +POLICY or +STATE, or files of keys (.yaml) "
           "that are laid over CONFIG")
      ->delimiter(',')
      ->allow_extra_args(false)  // CONFIG may come after it
      ->required();
  AddValue(*choose, "--baseline", a->options.baseline, "ARM",
           "the arm of which others are told (fp32)");
  AddValue(*choose, "--budget", a->budget, "SHARE",
           "by how much of the baseline's loss an arm may be worse (1%)");
  choose->add_flag("--html", a->options.html, "a page as well, FOLDER/choose.html");
  return {choose, [a] { return Choose(*a); }};
}

Command AddAblate(CLI::App& app) {
  auto a = std::make_shared<AblateArguments>();
  CLI::App* ablate =
      Add(app, "ablate", "what each ingredient of a recipe does: trains with it alone and without",
          "  ada-train ablate configs/gpt2_jargon_quick.yaml --set precision.recipe=te_nvfp4\n"
          "  ada-train ablate mine.yaml --parts gradients,policy --seeds 1 --html");
  AddTrainings(*ablate, *a, a->options, "ablations");
  AddValue(*ablate, "--parts", a->options.parts, "NAME,NAME",
           "the ingredients to ask about (default: all); a wrong name lists them")
      ->delimiter(',')
      ->allow_extra_args(false);
  ablate->add_flag("--pairs", a->options.pairs,
                   "trains each two ingredients together as well, to see which do not add up");
  ablate->add_flag("--html", a->options.html, "a page as well, FOLDER/ablate.html");
  return {ablate, [a] { return Ablate(*a); }};
}

Command AddMismatch(CLI::App& app) {
  auto a = std::make_shared<MismatchArguments>();
  CLI::App* mismatch =
      Add(app, "mismatch",
          "how far predictions under two precisions lie apart, and which layer does it",
          "  ada-train mismatch runs/fashion_quickstart --precision bf16 --precision fp16\n"
          "  ada-train mismatch sampler.safetensors trainer.safetensors --csv");
  AddValue(*mismatch, "PATH", a->options.paths, "",
           "a run's folder, a checkpoint, or with --config a file of weights;\n"
           "without --precision two files of predictions: logits or logprobs\n"
           "[samples, positions, classes], or token_logprobs [samples, positions]");
  AddValue(*mismatch, "--precision", a->precision, "WHAT",
           "a side, twice: a format, a recipe, or a file of keys (.yaml)")
      ->allow_extra_args(false);
  AddValue(*mismatch, "-c,--config", a->config, "FILE",
           "the experiment, instead of the checkpoint's own");
  AddBest(*mismatch, a->best);
  AddValue(*mismatch, "--samples", a->options.samples, "N", "that are compared, at most (64)");
  mismatch->add_flag("--no-layers", a->no_layers, "predictions alone");
  AddValue(*mismatch, "--twin", a->options.twin, "FILE",
           "predictions of the first file's precision again, which give the floor");
  AddValue(*mismatch, "--picture", a->options.picture, "FILE",
           "an SVG: what each layer makes alone");
  AddView(*mismatch, a->view);
  AddJson(*mismatch, a->view.json);
  AddOverrides(*mismatch, *a, {DataOptions().front(), MachineOptions().front()});
  return {mismatch, [a] { return Mismatch(*a); }};
}

Command AddBlame(CLI::App& app) {
  auto a = std::make_shared<BlameArguments>();
  CLI::App* blame = Add(app, "blame", "which layer's format changes what a training does",
                        "  ada-train blame runs/fashion_quickstart --metric gradient\n"
                        "  ada-train blame runs/fashion_quickstart --by tensor --steps 5 --csv");
  AddValue(*blame, "RUN_DIR", a->options.folder, "", "a run with a checkpoint, also a finished one")
      ->required();
  AddValue(*blame, "--metric", a->metric, "WHAT",
           "loss (default), over some steps; gradient: weight gradients, of one step");
  AddValue(*blame, "--steps", a->steps, "N", "steps of each fork (default: loss 20, gradient 1)");
  AddValue(*blame, "--by", a->by, "WHAT",
           "layer (default), block, or tensor: one kind in all layers");
  AddValue(*blame, "--threads", a->threads, "N", "instead of the run's");
  AddValue(*blame, "--picture", a->options.picture, "FILE", "an SVG of the ranking");
  AddView(*blame, a->view);
  AddJson(*blame, a->view.json);
  return {blame, [a] { return Blame(*a); }};
}

// FILE or --config names the experiment; its precision says how block-scaled layers are stored.
Command AddAssign(CLI::App& app) {
  auto a = std::make_shared<AssignArguments>();
  CLI::App* assign =
      Add(app, "assign", "the cheapest format for each layer within a budget of gradient error",
          "  ada-train assign configs/lenet_fashion.yaml --formats fp8_e5m2,fp16 --budget 1%\n"
          "  ada-train assign mine.yaml --formats fp16,bf16 --steps 200 --yaml formats.yaml\n"
          "  ada-train assign mine.yaml --formats bf16,nvfp4 --budget 5%");
  AddExperiment(*assign, *a);
  AddValue(*assign, "--formats", a->formats, "F,F",
           "to choose from, block-scaled ones too; fp32 is always there")
      ->delimiter(',')
      ->allow_extra_args(false)  // FILE may come after it
      ->required();
  AddValue(*assign, "--budget", a->budget, "SHARE",
           "of the weight gradients' error (default 0.1%)");
  AddValue(*assign, "--steps", a->options.steps, "N",
           "of the training that proves it (default 50; 0: none)");
  AddValue(*assign, "--yaml", a->options.yaml, "FILE", "write the section there, for train --with");
  AddJson(*assign, a->options.json);
  AddOverrides(*assign, *a, DataAndMachineOptions());
  return {assign, [a] { return Assign(*a); }};
}

}  // namespace

Commands AddDecisionCommands(CLI::App& app) {
  return {AddChoose(app), AddAblate(app), AddMismatch(app), AddBlame(app), AddAssign(app)};
}

}  // namespace ada::cli
