// A command that reads a configuration has the same options and the same way to it: a file, a
// shipped one, or that of a checkpoint, changed by --set and by options that are short for keys.
#include "cli/config_options.h"

#include <charconv>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "cli/command_line.h"
#include "cli/shipped.h"
#include "error.h"
#include "io/file.h"
#include "io/text.h"
#include "run/evaluate/weights.h"

namespace ada::cli {
namespace {

using Value = ShortOption::Value;

// Whether all of `value` is a T.
template <class T>
bool IsA(const std::string& value) {
  T read;
  const char* end = value.data() + value.size();
  // A number that is too large for T is one all the same; its key refuses it with the range.
  const auto [stopped, error] = std::from_chars(value.data(), end, read);
  return stopped == end && error != std::errc::invalid_argument;
}

// `value` as it would be written after the key. The key checks its range. Text is
// quoted if YAML would read it as something else; numbers are only checked for being
// numbers.
std::string YamlOf(const ShortOption& option, const std::string& value) {
  const std::string given = std::string(option.name) + " " + value;
  if (option.value == Value::kText) return config::YamlText(value);
  if (option.value == Value::kWhole && !IsA<std::int64_t>(value))
    throw ConfigError(given + ": expected a whole number");
  if (option.value == Value::kNumber && !IsA<double>(value))
    throw ConfigError(given + ": expected a number");
  return value;
}

// Short options become entries of `set` as they are parsed, so the last one of a key wins, as with
// --set.
void AddShort(CLI::App& app, ConfigArguments& a, const ShortOption& option) {
  app.add_option_function<std::string>(
         option.name,
         [&a, option](const std::string& value) {
           a.set.push_back(option.key + ("=" + YamlOf(option, value)));
         },
         option.what + (std::string(" (") + option.key + ")"))
      ->type_name(option.type)
      ->trigger_on_parse();
}

// Notes say what an override dropped; stdout may be CSV, so they go to stderr.
config::Config PrintNotes(config::Loaded loaded) {
  for (const std::string& note : loaded.notes) std::cerr << note << '\n';
  return std::move(loaded.config);
}

}  // namespace

void AddOverrides(CLI::App& app, ConfigArguments& a, const std::vector<ShortOption>& shorts) {
  AddSet(app, a.set, "--set scaling.policy=fixed --set scaling.scale=1024");
  for (const ShortOption& option : shorts) AddShort(app, a, option);
}

std::vector<ShortOption> MachineOptions() {
  return {{"--device", "device.kind", "DEVICE", "auto, cpu, cuda or cuda:1", Value::kText},
          {"--threads", "device.threads", "N", "threads of the CPU backend; 0: one per core",
           Value::kWhole}};
}

std::vector<ShortOption> DataOptions() {
  return {{"--data", "data.path", "DIR", "the folder of the data set", Value::kText},
          {"--format", "precision.format", "FORMAT", "fp16, bf16 ... or '{exponent: 4, ...}'",
           Value::kYaml}};
}

std::vector<ShortOption> DataAndMachineOptions() {
  std::vector<ShortOption> all = DataOptions();
  for (const ShortOption& option : MachineOptions()) all.push_back(option);
  return all;
}

void AddWeights(CLI::App& app, const char* name, const char* type, std::string& weights,
                const char* more) {
  const std::string what =
      "a run's folder, whose newest checkpoint is taken; either file of a\n"
      "checkpoint; or, with --config, weights alone (safetensors)";
  app.add_option(name, weights, what + more)->type_name(type);
}

void AddBest(CLI::App& app, bool& best) {
  app.add_flag("--best", best, "of a folder: the best checkpoint instead of the newest");
}

void AddConfig(CLI::App& app, ConfigArguments& a, const char* more) {
  const std::string what = "the experiment (YAML or JSON), instead of the checkpoint's own";
  app.add_option("-c,--config", a.config, what + more)->type_name("FILE");
}

void TakeFile(ConfigArguments& a, const std::string& file) {
  if (!file.empty() && !a.config.empty())
    throw ConfigError(file + " and --config " + a.config + ": expected one configuration");
  if (a.config.empty()) a.config = file;
}

config::Loaded LoadConfig(ConfigArguments& a, config::Overrides before) {
  std::error_code error;
  config::Overrides overrides = std::move(before);
  for (config::Override& item : OverridesOf(a.set)) overrides.push_back(std::move(item));
  const std::filesystem::file_status status = std::filesystem::status(a.config, error);
  // Whatever is there is taken, also what cannot be read: a shipped configuration of the same name
  // would be a surprise.
  if (status.type() != std::filesystem::file_type::not_found)
    return config::Load(a.config, overrides);
  const std::string shipped = ShippedPath(a.config);
  if (shipped.empty()) {
    const std::string hint = DidYouMean(NearestName(a.config, ShippedNames()));
    throw ConfigError(a.config + ": no such file, and no shipped configuration of that name" +
                      hint + (hint.empty() ? ";" : "") + " `ada-train configs` lists them");
  }
  config::Loaded loaded = config::Load(shipped, overrides);
  loaded.notes.insert(loaded.notes.begin(), a.config + ": no file here; taken from " + shipped);
  a.config = shipped;
  return loaded;
}

config::Config ConfigOf(ConfigArguments& a, config::Overrides before) {
  return PrintNotes(LoadConfig(a, std::move(before)));
}

config::Config FilledConfigOf(ConfigArguments& a, const std::string& checkpoint,
                              const config::Overrides& before) {
  const auto of_checkpoint = [&] {
    config::Overrides overrides = before;
    for (config::Override& item : OverridesOf(a.set)) overrides.push_back(std::move(item));
    return config::LoadText(run::CheckpointConfig(checkpoint), checkpoint + " (config)", overrides);
  };
  config::Config config = a.config.empty() ? PrintNotes(of_checkpoint()) : ConfigOf(a, before);
  config::FillDefaults(config);
  return config;
}

config::Config EvaluatedConfigOf(ConfigArguments& a, const std::string& weights,
                                 const config::Overrides& before) {
  config::Config config = FilledConfigOf(a, weights, before);
  // Weights of a step are evaluated in the formats of that step.
  if (!config.precision.schedule.empty())
    config.precision = config::PrecisionAt(config.precision, run::StepOfWeights(weights));
  return config;
}

std::string WeightsAt(const std::string& path, bool best) {
  if (IsFolder(path)) return run::CheckpointOfRun(path, best);
  if (best) throw ConfigError("--best: " + path + " is no folder; expected that of a run");
  if (path.ends_with(".yaml") || path.ends_with(".yml"))
    throw ConfigError(path +
                      ": is a configuration; expected the folder of a run, a checkpoint, or with "
                      "--config a file of weights");
  return path;
}

}  // namespace ada::cli
