// Options that several commands have, their values, and operands that --set has swallowed. A
// command that reads a configuration has the same options and the same way to it: a file, a shipped
// one, or that of a checkpoint, changed by --set and by options that are short for keys.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "cli/command_line.h"
#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/evaluate/weights.h"
#include "study/text_table.h"

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

}  // namespace

void AddColor(CLI::App& app) {
  app.add_option_function<std::string>(
         "--color",
         [](const std::string& when) {
           if (when == "auto") return SetColorChoice(ColorChoice::kAuto);
           if (when == "always") return SetColorChoice(ColorChoice::kAlways);
           if (when == "never") return SetColorChoice(ColorChoice::kNever);
           throw ConfigError("--color " + when + ": expected auto, always or never");
         },
         "auto (on a terminal, unless NO_COLOR is set), always or never")
      ->type_name("WHEN")
      ->trigger_on_parse();
}

// Every command has --color, so that it may stand before or after the command.
CLI::App* Add(CLI::App& app, const char* name, const char* what, const std::string& examples) {
  CLI::App* command = app.add_subcommand(name, what);
  command->footer("Examples:\n" + examples);
  AddColor(*command);
  return command;
}

void AddSet(CLI::App& app, std::vector<std::string>& set, const char* example) {
  // Handled during parsing, because the order relative to short options for keys matters.
  app.add_option_function<std::vector<std::string>>(
         "--set",
         [&set](const std::vector<std::string>& items) {
           set.insert(set.end(), items.begin(), items.end());
         },
         std::string("override a key: ") + example)
      ->type_name("KEY=VALUE")
      // Several pairs may follow one --set; that is why it also takes an operand that comes after
      // them.
      ->expected(1, -1)
      ->trigger_on_parse();
}

void AddFormat(CLI::App& app, std::string& format, const std::string& what) {
  AddValue(app, "--format", format, "FORMAT", what + "; a name or '{exponent: 4, mantissa: 3}'");
}

void AddAccumulate(CLI::App& app, std::vector<std::string>& rules, const std::string& what) {
  AddValue(app, "--accumulate", rules, "RULE",
           what +
               " accumulator\n(hopper_fp8, a map, {forward: .., dx: .., dw: ..}), of "
               "operands in --format")
      ->allow_extra_args(false);
}

std::vector<config::AccumulatesConfig> ReadAccumulators(const std::vector<std::string>& rules) {
  std::vector<config::AccumulatesConfig> accumulators;
  for (const std::string& rule : rules) {
    const auto& asked = accumulators.emplace_back(
        config::LoadPrecision({{"precision.accumulate", rule}}).config.precision.accumulate);
    if (std::none_of(asked.by_matmul.begin(), asked.by_matmul.end(),
                     [](const auto& product) { return product && product->rule; }))
      throw ConfigError("--accumulate " + rule +
                        ": sums in fp32 are what others are judged by; "
                        "expected an accumulator (`ada-train accumulators`)");
  }
  return accumulators;
}

config::Overrides OverridesOf(const std::vector<std::string>& set, config::Overrides overrides) {
  for (const std::string& item : set) {
    const std::size_t equals = item.find('=');
    // The value may hold equal signs, and may be empty: the first one divides.
    if (equals == std::string::npos || equals == 0)
      throw ConfigError("--set " + item +
                        ": expected KEY=VALUE, for example --set scaling.scale=1024");
    overrides.emplace_back(item.substr(0, equals), item.substr(equals + 1));
  }
  return overrides;
}

void TakeOperand(std::string& operand, std::vector<std::string>& set) {
  const auto found = std::find_if(set.begin(), set.end(), [](const std::string& item) {
    return item.find('=') == std::string::npos;
  });
  if (!operand.empty() || found == set.end()) return;
  operand = *found;
  set.erase(found);
}

void RequireOperand(std::string& operand, std::vector<std::string>& set, const std::string& what,
                    const std::string& command) {
  TakeOperand(operand, set);
  if (operand.empty())
    throw ConfigError(what + " is missing; `ada-train " + command + " --help` shows examples");
}

double Checked(double value, double low, double high, const char* option, const char* expected) {
  // NaN fails both comparisons and is refused.
  if (value >= low && value <= high) return value;
  throw ConfigError(std::string(option) + " " + ShortestText(value) + ": expected " + expected);
}

double ShareOf(const std::string& option, const std::string& text) {
  const bool percent = text.ends_with('%');
  const std::string digits = text.substr(0, text.size() - (percent ? 1 : 0));
  double number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool whole = error == std::errc() && end == digits.data() + digits.size();
  if (!whole || !std::isfinite(number) || number <= 0)
    throw ConfigError(option + " " + text +
                      ": expected a share above 0, for example 0.1% or 0.001");
  return percent ? number / 100 : number;
}

std::vector<std::string> WholeFormats(const std::vector<std::string>& pieces) {
  std::vector<std::string> formats;
  std::ptrdiff_t open = 0;
  for (const std::string& piece : pieces) {
    // A comma within braces was cut too: pieces are joined again until the braces are closed.
    if (open > 0)
      formats.back() += "," + piece;
    else
      formats.push_back(piece);
    open +=
        std::count(piece.begin(), piece.end(), '{') - std::count(piece.begin(), piece.end(), '}');
  }
  return formats;
}

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
  AddValue(app, name, weights, type, what + more);
}

void AddBest(CLI::App& app, bool& best) {
  app.add_flag("--best", best, "of a folder: the best checkpoint instead of the newest");
}

void AddConfig(CLI::App& app, ConfigArguments& a, const char* more) {
  const std::string what = "the experiment (YAML or JSON), instead of the checkpoint's own";
  AddValue(app, "-c,--config", a.config, "FILE", what + more);
}

void AddExperiment(CLI::App& app, ExperimentArguments& a, const std::string& operand) {
  AddValue(app, operand, a.file, "", "the experiment (YAML or JSON)");
  AddValue(app, "-c,--config", a.config, "FILE", "the same as " + operand);
}

void TakeFile(ExperimentArguments& a) {
  if (!a.file.empty() && !a.config.empty())
    throw ConfigError(a.file + " and --config " + a.config + ": expected one configuration");
  if (a.config.empty()) a.config = a.file;
}

void TakeExperiment(ExperimentArguments& a, const std::string& operand,
                    const std::string& command) {
  // FILE after --set is taken for one of its values; RequireOperand finds it there.
  if (a.config.empty()) RequireOperand(a.file, a.set, operand, command);
  TakeFile(a);
}

config::Config PrintNotes(config::Loaded loaded) {
  for (const std::string& note : loaded.notes) std::cerr << note << '\n';
  return std::move(loaded.config);
}

config::Loaded LoadConfig(ConfigArguments& a, config::Overrides before) {
  std::error_code error;
  const config::Overrides overrides = OverridesOf(a.set, std::move(before));
  const std::filesystem::file_status status = std::filesystem::status(a.config, error);
  // Whatever is there is taken, also what cannot be read: a shipped configuration of the same name
  // would be a surprise.
  if (status.type() != std::filesystem::file_type::not_found)
    return config::Load(a.config, overrides);
  const std::string shipped = ShippedPath(a.config);
  if (shipped.empty()) {
    const std::string hint = study::DidYouMean(a.config, ShippedNames());
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
    return config::LoadText(run::CheckpointConfig(checkpoint), checkpoint + " (config)",
                            OverridesOf(a.set, before));
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
