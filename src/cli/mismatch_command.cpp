// mismatch: the predictions of the same weights under two precisions, or those in two files.
#include <algorithm>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/config_options.h"
#include "cli/output.h"
#include "error.h"
#include "io/file.h"
#include "study/commands.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

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
  Checked(static_cast<double>(options.samples), 1, 1e9, "--samples", "a whole number from 1 on");
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

}  // namespace

Commands AddMismatchCommands(CLI::App& app) {
  auto a = std::make_shared<MismatchArguments>();
  CLI::App* mismatch =
      Add(app, "mismatch",
          "how far predictions under two precisions lie apart, and which layer does it",
          "  ada-train mismatch runs/fashion_quickstart --precision bf16 --precision fp16\n"
          "  ada-train mismatch sampler.safetensors trainer.safetensors --csv");
  mismatch
      ->add_option("PATH", a->options.paths,
                   "a run's folder, a checkpoint, or with --config a file of weights;\n"
                   "without --precision two files of predictions: logits or logprobs\n"
                   "[samples, positions, classes], or token_logprobs [samples, positions]")
      ->type_name("");
  mismatch
      ->add_option("--precision", a->precision,
                   "a side, twice: a format, a recipe, or a file of keys (.yaml)")
      ->type_name("WHAT")
      ->allow_extra_args(false);
  mismatch->add_option("-c,--config", a->config, "the experiment, instead of the checkpoint's own")
      ->type_name("FILE");
  AddBest(*mismatch, a->best);
  mismatch->add_option("--samples", a->options.samples, "that are compared, at most (64)")
      ->type_name("N");
  mismatch->add_flag("--no-layers", a->no_layers, "predictions alone");
  mismatch
      ->add_option("--twin", a->options.twin,
                   "predictions of the first file's precision again, which give the floor")
      ->type_name("FILE");
  mismatch->add_option("--picture", a->options.picture, "an SVG: what each layer makes alone")
      ->type_name("FILE");
  AddView(*mismatch, a->view);
  AddJson(*mismatch, a->view.json);
  AddOverrides(*mismatch, *a, {DataOptions().front(), MachineOptions().front()});
  return {{mismatch, [a] { return Mismatch(*a); }}};
}

}  // namespace ada::cli
