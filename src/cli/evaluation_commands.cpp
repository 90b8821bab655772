// evaluate, predict (single photos) and generate (a text by a language model): by the weights of a
// run's folder, a checkpoint, or plain weights.
#include "run/evaluate/evaluation_commands.h"

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/text.h"
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

// With a configuration of its own the weights need not be a checkpoint.
Command AddEvaluate(CLI::App& app) {
  auto a = std::make_shared<EvaluateArguments>();
  CLI::App* evaluate = Add(app, "evaluate", "loss and metrics of a checkpoint, as CSV",
                           "  ada-train evaluate runs/fashion_quickstart --best\n"
                           "  ada-train evaluate weights.safetensors --config "
                           "configs/resnet20_cifar.yaml --outputs outputs.safetensors");
  AddWeights(*evaluate, "RUN", "", a->run,
             ".\nMissing, with --config: the network as model.init leaves it");
  AddValue(*evaluate, "--checkpoint", a->checkpoint, "RUN", "the same as RUN");
  AddBest(*evaluate, a->best);
  AddConfig(*evaluate, *a);
  AddOverrides(*evaluate, *a, DataAndMachineOptions());
  AddValue(*evaluate, "--predictions", a->options.predictions, "PATH",
           "also write a CSV with one row an image: label, prediction,\n"
           "probabilities, loss and the label's rank. Segmentation, detection:\n"
           "a folder of label images and overlays, or of detections.csv and\n"
           "pictures with boxes");
  AddValue(*evaluate, "--outputs", a->options.outputs, "FILE",
           "also write what the network gives for each image of split test,\n"
           "in the order of the files: tensor `outputs`, fp32 [images, classes].\n"
           "Language: [sequences, tokens, vocabulary], of split validation\n"
           "where there is no split test");
  evaluate->add_flag("--per-class", a->options.per_class,
                     "a row a class, with its precision, instead of a row a split");
  evaluate->add_flag("--no-progress", a->no_progress, "no progress line");
  return {evaluate, [a] { return Evaluate(*a); }};
}

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

Command AddPredict(CLI::App& app) {
  auto a = std::make_shared<PredictArguments>();
  CLI::App* predict = Add(app, "predict", "the likeliest classes of single photos",
                          "  ada-train predict cat.jpg dog.png --checkpoint runs/photos --best\n"
                          "  ada-train predict photos/ --checkpoint runs/photos --csv");
  AddValue(*predict, "PHOTO", a->photos, "",
           "JPEG, PNG or WebP files, or folders of them; of several photos those\n"
           "that cannot be read are left out with a line");
  AddWeights(*predict, "--checkpoint", "FILE", a->checkpoint);
  AddBest(*predict, a->best);
  AddConfig(*predict, *a,
            "; sizes and\nnames then come from its data set, as with --data and --set data...");
  AddOverrides(*predict, *a, DataAndMachineOptions());
  AddValue(*predict, "--top", a->options.top, "N", "classes to name; default: 5");
  predict->add_flag("--csv", a->csv, "photo,rank,class,name,probability");
  AddValue(*predict, "--predictions", a->options.predictions, "FOLDER",
           "segmentation, detection: also write label images and overlays, or\n"
           "detections.csv and pictures with boxes");
  predict->add_flag("--json", a->json, "a list with one map a photo");
  return {predict, [a] { return Predict(*a); }};
}

// The largest seed is the last whole number up to which a double holds each one.
constexpr double kMostGenerated = 1e9, kHottest = 1e6, kLargestSeed = 9007199254740992.0;

// Whole numbers are parsed as doubles, so that 1e6 is one; WholeNumber refuses fractions.
struct GenerateArguments : ConfigArguments {
  std::string run;
  bool best = false;
  std::string prompt, prompt_tokens;
  double tokens = 256, temperature = 1, seed = 1;
  run::GenerateOptions options;
};

// "464,3290": one comma, blanks or both between two numbers.
// Throws ConfigError with the place of the first character that does not fit. Nine digits fit every
// vocabulary and cannot overflow.
std::vector<std::int64_t> TokensOf(const std::string& text) {
  constexpr std::size_t kMostDigits = 9;
  const auto skip = [&](std::size_t at, const char* what) {
    return std::min(text.find_first_not_of(what, at), text.size());
  };
  const auto fail = [&](std::size_t at) {
    const std::string found = at == text.size() ? "it ends" : "there stands " + text.substr(at, 1);
    throw ConfigError("--prompt-tokens: '" + text +
                      "'; expected whole numbers between commas, such as 464,3290; at character " +
                      std::to_string(at + 1) + " " + found);
  };
  std::vector<std::int64_t> tokens;
  std::size_t at = 0;
  for (bool more = !text.empty(); more;) {
    const std::size_t end = skip(at, "0123456789");
    if (end == at || end - at > kMostDigits) fail(at);
    tokens.push_back(std::stoll(text.substr(at, end - at)));
    at = skip(end, " ");
    more = at < text.size();
    if (more && text[at] == ',')
      at = skip(at + 1, " ");
    else if (more && at == end)
      fail(at);
  }
  return tokens;
}

double WholeNumber(double value, double low, double high, const char* option,
                   const char* expected) {
  const double checked = Checked(value, low, high, option, expected);
  if (checked == std::floor(checked)) return checked;
  throw ConfigError(std::string(option) + " " + ShortestText(value) + ": expected " + expected);
}

// The text goes to stdout as it is made; everything else goes to the log.
int Generate(GenerateArguments& a) {
  RequireOperand(a.run, a.set, "RUN", "generate");
  if (!a.prompt.empty() && !a.prompt_tokens.empty())
    throw ConfigError("--prompt and --prompt-tokens: expected one of them");
  run::GenerateOptions& o = a.options;
  o.prompt = a.prompt;
  o.prompt_tokens = TokensOf(a.prompt_tokens);
  o.tokens = static_cast<std::int64_t>(
      WholeNumber(a.tokens, 0, kMostGenerated, "--tokens", "a whole number from 0 to 1e9"));
  o.temperature = Checked(a.temperature, 0, kHottest, "--temperature", "a number from 0 to 1e6");
  o.seed = static_cast<std::uint64_t>(
      WholeNumber(a.seed, 0, kLargestSeed, "--seed", "a whole number from 0 to 2^53"));
  // The folder of a run stands for a checkpoint, as in evaluate.
  const std::string path = WeightsAt(a.run, a.best);
  const config::Config config = EvaluatedConfigOf(a, path);
  telemetry::Log log;
  run::Generate(config, path, o, std::cout, log);
  return 0;
}

// RUN may follow --set, so it is not declared as required; RequireOperand asks for it.
Command AddGenerate(CLI::App& app) {
  auto a = std::make_shared<GenerateArguments>();
  CLI::App* generate =
      Add(app, "generate", "a text, token by token, by a language model",
          "  ada-train generate runs/gpt2_jargon --prompt \"hacker n.\" --temperature 0.8\n"
          "  ada-train generate runs/gpt2 --prompt-tokens 464,3290 --tokens 20 --seed 7");
  AddWeights(*generate, "RUN", "", a->run);
  AddBest(*generate, a->best);
  AddConfig(*generate, *a);
  AddValue(*generate, "--prompt", a->prompt, "TEXT",
           "what to go on with, of models whose tokens are bytes; what is\n"
           "longer than the context is seen in part: its end");
  AddValue(*generate, "--prompt-tokens", a->prompt_tokens, "LIST",
           "the same as tokens, 464,3290, of any model; what follows is printed\n"
           "as numbers where tokens are no bytes");
  AddValue(*generate, "--tokens", a->tokens, "N", "tokens to make; default: 256");
  AddValue(*generate, "--temperature", a->temperature, "T",
           "logits are divided by it; 0: always the likeliest token; default: 1");
  AddValue(*generate, "--seed", a->seed, "S", "of the draws; default: 1");
  AddOverrides(*generate, *a, MachineOptions());
  return {generate, [a] { return Generate(*a); }};
}

}  // namespace

Commands AddEvaluationCommands(CLI::App& app) {
  return {AddEvaluate(app), AddPredict(app), AddGenerate(app)};
}

}  // namespace ada::cli
