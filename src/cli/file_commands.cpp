// inspect, convert, replay: what reads files that may come from elsewhere.
#include <array>
#include <cstdio>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "io/shown_text.h"
#include "number/tables/table_format.h"
#include "study/commands.h"

namespace ada::cli {
namespace {

// "text" stands for no --csv.
struct InspectArguments {
  std::string file, tensors = "*", format, csv = "text", rounding, overflow;
  std::vector<std::string> set, accumulators;
  std::optional<double> scale_in;
  std::optional<int> axis;
  bool all = false, json = false;
};

// The format stays a text until all options are parsed, so that its message comes after theirs.
struct ConvertArguments {
  std::string format = "fp16", rounding, overflow;
  std::optional<int> random_bits;
  study::ConvertOptions options;
};

// The words of --overflow; their order is that of TableOverflow.
constexpr std::array<const char*, 3> kOverflowWords = {"none", "saturate", "saturate_finite"};

// The place of `word`; ConfigError names all of them where it is none.
std::size_t WordPlace(const char* option, const std::string& word,
                      std::span<const char* const> words) {
  std::string all;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (word == words[i]) return i;
    all += (i == 0 ? "" : ", ") + std::string(words[i]);
  }
  throw ConfigError(std::string(option) + " " + word + ": expected one of " + all);
}

// Numbers of the made-up trace are optional, so that giving one can be told from the default.
struct ReplayArguments {
  std::string file, trace, scaling, policy, preset;
  std::string updates, config, output;  // of --updates
  std::vector<std::string> set;
  std::optional<std::int64_t> steps, every;  // of a trace that is made up
  std::optional<double> overflow;
  std::optional<std::uint64_t> seed;
  ViewFlags view;
  study::ReplayOptions options;
};

// The modes of --rounding and --overflow; empty words are the defaults.
TableModes ModesOf(const std::string& rounding, const std::string& overflow) {
  TableModes modes;
  if (!rounding.empty())
    modes.rounding =
        static_cast<TableRounding>(WordPlace("--rounding", rounding, kTableRoundingNames) + 1);
  if (!overflow.empty())
    modes.overflow = static_cast<TableOverflow>(WordPlace("--overflow", overflow, kOverflowWords));
  return modes;
}

// Sums are judged as what-if --dump judges them; of operands as they are stored, or in --format.
int InspectSums(const InspectArguments& a) {
  if (a.all || a.axis || a.scale_in || !a.set.empty() || !a.rounding.empty() || !a.overflow.empty())
    throw ConfigError("--accumulate: goes with --tensors, --format, --csv and --json alone");
  study::WhatIfDumpOptions options;
  options.dump = a.file, options.tensors = a.tensors, options.command = "inspect";
  if (!a.format.empty()) options.formats.push_back(config::ReadAnyFormat(a.format));
  options.accumulators = ReadAccumulators(a.accumulators);
  if (a.csv != "text" && a.csv != "sums")
    throw ConfigError("--csv " + a.csv + ": expected sums beside --accumulate");
  options.view = a.json            ? study::View::kJson
                 : a.csv == "sums" ? study::View::kCsv
                                   : study::View::kTable;
  study::WhatIfDump(options, std::cout);
  return 0;
}

// The format may be block-scaled; what does not go with one is refused by study::Inspect.
int Inspect(InspectArguments& a) {
  RequireOperand(a.file, a.set, "FILE", "inspect");
  if (a.json && (a.all || a.csv != "text"))
    throw ConfigError(std::string("--json and ") + (a.all ? "--all" : "--csv") +
                      "; expected one of them");
  if (!a.accumulators.empty()) return InspectSums(a);
  study::InspectOptions options;
  options.path = a.file;
  options.tensors = a.tensors;
  options.format = config::ReadAnyFormat(a.format.empty() ? "fp16" : a.format);
  const TableModes modes = ModesOf(a.rounding, a.overflow);
  if (IsStochastic(modes.rounding))
    throw ConfigError("--rounding " + a.rounding + ": counts are of a rounding without chance");
  if (auto* plain = std::get_if<NumberFormat>(&options.format))
    *plain = modes == TableModes() ? *plain : WithModes(*plain, modes);
  else if (modes != TableModes())
    throw ConfigError("--rounding and --overflow are of plain formats, and " +
                      FormatName(options.format) + " has blocks");
  options.axis = a.axis;
  options.scale_in = a.scale_in;
  options.overrides = OverridesOf(a.set);
  options.output = a.json  ? study::InspectOptions::Output::kJson
                   : a.all ? study::InspectOptions::Output::kAll
                           : study::ParseInspectOutput(a.csv);
  study::Inspect(options, std::cout, std::cerr);
  return 0;
}

// Plain formats become tables where a mode is asked for.
void TakeFormat(ConvertArguments& a) {
  study::ConvertOptions& options = a.options;
  constexpr int kMostBits = 16;
  options.modes = ModesOf(a.rounding, a.overflow);
  TableModes& modes = options.modes;
  if (a.random_bits)
    modes.random_bits = static_cast<int>(
        Checked(*a.random_bits, 1, kMostBits, "--random-bits", "a number from 1 to 16"));
  if (a.random_bits && !IsStochastic(modes.rounding))
    throw ConfigError(
        "--random-bits: expected --rounding stochastic_a, stochastic_b or "
        "stochastic_c");
  const bool asks = !a.rounding.empty() || !a.overflow.empty();
  const char* const asked = a.rounding.empty() ? "--overflow" : "--rounding";
  options.table = TableFormatNamed(a.format);
  if (options.table) return;
  options.format = config::ReadAnyFormat(a.format);
  if (!asks) return;
  const auto* plain = std::get_if<NumberFormat>(&options.format);
  if (plain == nullptr || !plain->is_signed ||
      plain->exponent_bits + plain->mantissa_bits >= kMostBits)
    throw ConfigError(std::string(asked) + ": " + FormatName(options.format) +
                      " is no plain format of at most 16 bits");
  options.table = TableOf(*plain);
}

int Convert(ConvertArguments& a) {
  // The output is written whole before it takes its place, so the input is read to its end first.
  OutputPaths paths;  // IN may be OUT
  paths.Write("OUT", a.options.output);
  paths.Check();
  TakeFormat(a);
  study::Convert(a.options, std::cerr);
  return 0;
}

void AddModes(CLI::App& app, std::string& rounding, std::string& overflow) {
  AddValue(app, "--rounding", rounding, "MODE",
           "of a plain format: nearest_even, nearest_away, toward_zero, toward_positive,\n"
           "toward_negative, toward_odd; convert: also stochastic_a, _b or _c (IEEE P3109)");
  AddValue(app, "--overflow", overflow, "MODE",
           "beyond its largest value: none (what the format says), saturate, or\n"
           "saturate_finite (inf stays inf)");
}

void AddAxis(CLI::App& app, std::optional<int>& axis) {
  AddValue(app, "--axis", axis, "N",
           "along which the blocks of a block-scaled format run (default: the last; -1 too)");
}

// A policy is named in one of three ways; --set changes its keys in all of them.
config::LoadedScaling PolicyOf(const ReplayArguments& a) {
  const config::Overrides overrides = OverridesOf(a.set);
  if (!a.scaling.empty() && !(a.policy.empty() && a.preset.empty()))
    throw ConfigError("--scaling " + a.scaling + " names a policy, and so does " +
                      (a.preset.empty() ? "--policy" : "--preset") + "; expected one of them");
  if (!a.scaling.empty()) return config::LoadScaling(a.scaling, overrides);
  if (a.policy.empty() && a.preset.empty())
    throw ConfigError(
        "no policy is named; expected --preset NAME (`ada-train policies` lists them), --policy "
        "NAME or --scaling FILE");
  std::string text = "policy: " + config::YamlText(a.policy.empty() ? "dynamic" : a.policy);
  if (!a.preset.empty()) text += "\npreset: " + config::YamlText(a.preset);
  return config::LoadScalingText(text, a.preset.empty() ? "--policy" : "--preset", overrides);
}

// The one trace that is named, or the pattern.
// Also checks that options of a made-up trace and a trace are not given together.
void TakeTrace(ReplayArguments& a) {
  TakeOperand(a.file, a.set);
  if (!a.file.empty() && !a.trace.empty())
    throw ConfigError("two traces, " + a.file + " and --trace " + a.trace + "; expected one");
  a.options.trace = a.file.empty() ? a.trace : a.file;
  const bool made_up = a.steps || a.every || a.overflow || a.seed;
  if (made_up && !a.options.trace.empty())
    throw ConfigError("--steps, --every, --overflow and --seed make up a trace, and " +
                      a.options.trace + " is one; expected one of the two");
  if (!a.options.column.empty() && a.options.trace.empty())
    throw ConfigError("--column " + a.options.column + ": expected a trace that has it, FILE or -");
  study::ReplayPattern& pattern = a.options.pattern;
  pattern.steps = a.steps.value_or(pattern.steps);
  pattern.seed = a.seed.value_or(pattern.seed);
  // Where one of the two is given the other is off, and not at its default.
  if (a.every || a.overflow) {
    pattern.every = a.every.value_or(0);
    pattern.overflow = a.overflow.value_or(0);
  }
  constexpr char kCount[] = "a number from 1 to 1000000000";
  Checked(pattern.steps, 1, 1e9, "--steps", kCount);
  if (a.every) Checked(*a.every, 1, 1e9, "--every", kCount);
  Checked(pattern.overflow, 0, 1, "--overflow", "a share of the attempts, 0 to 1");
}

void PrintLines(const std::vector<std::string>& notes) {
  for (const std::string& note : notes)
    std::fprintf(stderr, "ada-train: %s\n", VisibleLines(note).c_str());
}

// --updates has options of its own: nothing that names a trace or a policy goes with it.
int ReplayUpdates(ReplayArguments& a) {
  TakeOperand(a.file, a.set);
  if (!a.file.empty() || !a.trace.empty() || !a.scaling.empty() || !a.policy.empty() ||
      !a.preset.empty() || !a.options.column.empty() || a.steps || a.every || a.overflow)
    throw ConfigError(
        "--updates replays updates, and not a policy: expected only --config, --set, --output and "
        "--seed beside it");
  OutputPaths paths;
  paths.Read("--updates", a.updates);
  paths.Read("--config", a.config);
  paths.Write("--output", a.output);
  paths.Check();
  study::ReplayUpdatesOptions options;
  options.file = a.updates, options.output = a.output;
  options.update = config::LoadUpdate(a.config, OverridesOf(a.set));
  PrintLines(options.update.notes);
  options.seed = a.seed.value_or(options.seed);
  options.view = a.view.View();
  study::ReplayUpdates(options, std::cout);
  return 0;
}

// The title says which policy is replayed, for a table and for the notes of a CSV.
int Replay(ReplayArguments& a) {
  if (!a.updates.empty()) return ReplayUpdates(a);
  for (const auto& [option, value] : {std::pair("--config", &a.config), {"--output", &a.output}})
    if (!value->empty())
      throw ConfigError(std::string(option) + ": expected --updates FILE beside it");
  TakeTrace(a);
  config::LoadedScaling loaded = PolicyOf(a);
  a.options.title = "policy " + loaded.scaling.policy;
  if (loaded.scaling.policy == "dynamic") a.options.title += ", preset " + loaded.scaling.preset;
  a.options.skips_layers = loaded.scaling.layer_preset == scaling::kDallePreset;
  if (loaded.scaling.policy == "layerwise_dynamic")
    a.options.title += ", preset " + loaded.scaling.layer_preset;
  // The retries of a step are a matter of `train`, and depend on the preset.
  config::FillScalingDefaults(loaded.scaling, loaded.train);
  PrintLines(loaded.notes);
  const auto policy = scaling::MakePolicy(loaded.scaling);
  a.options.max_retries = config::MaxRetries(loaded.train);
  a.options.view = a.view.View();
  study::Replay(*policy, a.options, std::cout, std::cerr);
  return 0;
}

// --all and --csv exclude each other: one is for people, the other for programs.
Command AddInspect(CLI::App& app) {
  auto a = std::make_shared<InspectArguments>();
  CLI::App* inspect =
      Add(app, "inspect", "what a format keeps of a file's tensors, what adaptive would choose",
          "  ada-train inspect gradients.safetensors --tensors '*.dy' --format fp8_e5m2\n"
          "  ada-train inspect gradients.safetensors --csv scales --scale-in 1024 --set "
          "scaling.underflow_target=1e-4");
  AddValue(*inspect, "FILE", a->file, "",
           "a safetensors file, from any framework; layers:\n"
           "NAME.dy with NAME.w (2 dimensions: linear, more: convolution) or without\n"
           "(a cast), for method exact_range with NAME.dx; a convolution's stride and "
           "groups follow\n"
           "from NAME.x or NAME.dx");
  AddValue(*inspect, "--tensors", a->tensors, "GLOB",
           "glob: only these; layers by the name of their dy");
  AddFormat(*inspect, a->format,
            "of all that is rounded, NAME.w before it is multiplied as well (fp16)");
  AddAxis(*inspect, a->axis);
  AddValue(*inspect, "--scale-in", a->scale_in, "S",
           "S that NAME.dy and NAME.dx carry (default: what the file's metadata say, as dumps do,\n"
           "else scaling.init_scale, 1): their values are rounded as they are, their extremes and\n"
           "moments shown without S");
  AddModes(*inspect, a->rounding, a->overflow);
  AddAccumulate(*inspect, a->accumulators,
                "instead: what sums of layers NAME.x, NAME.w, NAME.dy would lose by such an");
  AddSet(*inspect, a->set,
         "--set scaling.method=abs_range (one method), any key of policy adaptive");
  auto* csv =
      AddValue(*inspect, "--csv", a->csv, "WHAT", "counts, scales or sums: a table for programs");
  inspect
      ->add_flag("--all", a->all,
                 "histograms, moments and the stages of each decision, not a line a tensor")
      ->excludes(csv);
  AddJson(*inspect, a->json);
  return {inspect, [a] { return Inspect(*a); }};
}

// IN, OUT and --format are required; CLI11 says so where one is missing.
Command AddConvert(CLI::App& app) {
  auto a = std::make_shared<ConvertArguments>();
  CLI::App* convert = Add(
      app, "convert", "write what a format keeps: every float tensor rounded, as F32",
      "  ada-train convert weights.safetensors rounded.safetensors --format fp8_e4m3\n"
      "  ada-train convert gradients.safetensors scaled.safetensors --format fp16 --scale 1024\n"
      "  ada-train convert weights.safetensors blocks.safetensors --format nvfp4 --axis 1 "
      "--save-scales");
  study::ConvertOptions& options = a->options;
  AddValue(*convert, "IN", options.input, "", "a safetensors file")->required();
  AddValue(*convert, "OUT", options.output, "", "what is written (may be IN)")->required();
  AddFormat(*convert, a->format,
            "what is kept; also IEEE P3109's (binary8p3se ...), hifloat8, ue5m3");
  convert->get_option("--format")->required();
  AddValue(*convert, "--scale", options.scale, "S",
           "factor before rounding (default 1); it stays in the file");
  AddValue(*convert, "--tensors", options.tensors, "GLOB",
           "glob: only these; others stay as they are");
  AddAxis(*convert, options.axis);
  convert->add_flag("--save-scales", options.save_scales,
                    "of a block-scaled format: NAME.scale, NAME.codes (and NAME.amax) as well;\n"
                    "of formats of --rounding and --overflow NAME.codes");
  AddModes(*convert, a->rounding, a->overflow);
  AddValue(*convert, "--random-bits", a->random_bits, "N", "of stochastic modes (8)");
  AddValue(*convert, "--seed", options.seed, "N", "of stochastic modes (1)");
  return {convert, [a] { return Convert(*a); }};
}

// These options stand in a group of their own in the help.
void AddPattern(CLI::App& app, ReplayArguments& a) {
  const auto add = [&](const char* name, auto& value, const char* type, const char* what) {
    AddValue(app, name, value, type, what)->group("Without a trace one is made up");
  };
  add("--steps", a.steps, "N", "how many (default 1000)");
  add("--every", a.every, "N", "1 attempt in N overflows (default 50, beside --overflow none)");
  add("--overflow", a.overflow, "SHARE",
      "this share overflows at random (default 0.01, beside --every none)");
  add("--seed", a.seed, "N", "of the random ones (default 1)");
}

// FILE is optional: without one a trace is made up.
Command AddReplay(CLI::App& app) {
  auto a = std::make_shared<ReplayArguments>();
  CLI::App* replay =
      Add(app, "replay", "what a global policy does with a trace of overflows, or a made-up one",
          "  ada-train replay overflows.csv --preset deepspeed --set "
          "scaling.hysteresis=1\n"
          "  ada-train replay --preset pytorch --every 50 --overflow 0.01 --steps "
          "1000\n"
          "  ada-train replay --updates steps.safetensors --set optimizer.kind=adamw "
          "precision.optimizer_state=torchao_8bit -o kept.safetensors");
  AddValue(*replay, "FILE", a->file, "",
           "CSV with a column overflow (0, 1, False, True), or that alone without\n"
           "a header; logmax: amax, largest unscaled gradient. -: standard input.\n"
           "Or what DeepSpeed, Megatron or apex printed");
  AddValue(*replay, "--trace", a->trace, "FILE", "the same");
  AddValue(*replay, "--column", a->options.column, "NAME",
           "the column that tells it (default: overflow); of numbers such as\n"
           "grad_norm, inf and nan are overflows");
  AddValue(*replay, "--scaling", a->scaling, "FILE",
           "a configuration, or its section `scaling` alone");
  AddValue(*replay, "--preset", a->preset, "NAME",
           "a system's dynamic scale, as `policies` lists them");
  AddValue(*replay, "--policy", a->policy, "NAME",
           "none, fixed, dynamic, logmax or layerwise_dynamic (a row for\n"
           "each step and layer)");
  AddSet(*replay, a->set, "--set scaling.growth_interval=100");
  AddView(*replay, a->view);
  AddPattern(*replay, *a);
  const auto updates = [&](const char* name, std::string& to, const char* what) {
    AddValue(*replay, name, to, "FILE", what)->group("Updates instead of a policy");
  };
  updates("--updates", a->updates,
          "safetensors: parameter p, gradients g.1, g.2 ... through the update rule and\n"
          "precision.masters, optimizer_state, scaling.on_overflow and train.clip_norm");
  updates("--config", a->config, "a configuration; --set optimizer.kind=... does without");
  updates("-o,--output", a->output,
          "safetensors: p.1 ... p.N, the states by torch's names, codes and scales of blocks");
  return {replay, [a] { return Replay(*a); }};
}

}  // namespace

Commands AddFileCommands(CLI::App& app) {
  return {AddInspect(app), AddConvert(app), AddReplay(app)};
}

}  // namespace ada::cli
