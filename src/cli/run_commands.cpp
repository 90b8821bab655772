// what-if, recommend, advise, compare, watch: what reads the folder of a run.
#include <algorithm>
#include <cfloat>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "io/text.h"
#include "study/commands.h"

namespace ada::cli {
namespace {

// Formats are a list, although a run is judged by one: several are for dumps.
struct WhatIfArguments {
  std::string folder, dump, policy;
  std::vector<std::string> formats, recipes, accumulators;
  std::optional<double> scale;
  std::vector<std::string> set;
  ViewFlags view;
};

// The folders of the runs, A on the left.
struct CompareArguments {
  std::vector<std::string> runs;
  bool all = false, json = false;
};

// Not required here: an operand after --set is found only later (RequireOperand).
void AddFolder(CLI::App& app, std::string& folder, const char* what) {
  AddValue(app, "RUN_DIR", folder, "", what);
}

// Histograms do not know which values share a block, so such formats need a dump.
bool AnyOfBlocks(const std::vector<AnyFormat>& formats) {
  return std::any_of(formats.begin(), formats.end(), [](const AnyFormat& format) {
    return std::holds_alternative<BlockFormat>(format);
  });
}

// For the tensors of a dump only formats are judged. what: says that it is one.
// Throws ConfigError for options that have no meaning for a dump.
int WhatIfOfDump(const WhatIfArguments& a, const std::string& what, const std::string& dump,
                 const std::vector<AnyFormat>& formats) {
  const char* other = a.scale             ? "--scale"
                      : !a.policy.empty() ? "--policy"
                      : !a.set.empty()    ? "--set"
                                          : nullptr;
  if (other != nullptr)
    throw ConfigError(what + ": judges formats of the file's operands; leave out " + other);
  study::WhatIfDumpOptions options;
  options.dump = dump, options.formats = formats, options.view = a.view.View();
  options.accumulators = ReadAccumulators(a.accumulators);
  study::WhatIfDump(options, std::cout);
  return 0;
}

// Recipes are judged by a run's newest dump; its configuration tells which layers they spare.
int WhatIfOfRecipes(const WhatIfArguments& a) {
  const char* other = a.scale                   ? "--scale"
                      : !a.policy.empty()       ? "--policy"
                      : !a.formats.empty()      ? "--format"
                      : !a.accumulators.empty() ? "--accumulate"
                      : !a.dump.empty()         ? "--dump"
                      : !a.set.empty()          ? "--set"
                                                : nullptr;
  if (other != nullptr)
    throw ConfigError(std::string("--recipe: judges a run's newest dump as it is; leave out ") +
                      other);
  study::WhatIfRecipes({a.folder, a.recipes, a.view.View()}, std::cout, std::cerr);
  return 0;
}

// There are four questions: a dump that is named; a run and a block-scaled format, or recipes,
// which its newest dump answers; and a run and a plain format, scale or policy, which its
// histograms answer. A run without any of these is judged by all recipes.
int WhatIf(WhatIfArguments& a) {
  if (!a.recipes.empty() && (!a.dump.empty() || !a.formats.empty())) return WhatIfOfRecipes(a);
  std::vector<AnyFormat> formats;
  for (const std::string& format : a.formats) formats.push_back(config::ReadAnyFormat(format));
  if (!a.dump.empty()) {
    TakeOperand(a.folder, a.set);
    const std::string what = "--dump " + a.dump;
    if (!a.folder.empty())
      throw ConfigError(what + ": judges formats of the file's operands; leave out RUN_DIR");
    if (formats.empty() && a.accumulators.empty())
      throw ConfigError(what +
                        ": expected --format FORMAT or --accumulate RULE, once or several "
                        "times");
    return WhatIfOfDump(a, what, a.dump, formats);
  }
  RequireOperand(a.folder, a.set, "RUN_DIR", "what-if");
  if (!a.recipes.empty() ||
      (formats.empty() && a.accumulators.empty() && !a.scale && a.policy.empty() && a.set.empty()))
    return WhatIfOfRecipes(a);
  if (AnyOfBlocks(formats) || !a.accumulators.empty()) {
    const std::string dump = study::NewestDump(a.folder);
    std::cerr << (a.accumulators.empty() ? "blocks" : "sums") << " are judged in " << dump << '\n';
    return WhatIfOfDump(a,
                        a.accumulators.empty() ? "--format " + FormatName(formats.front())
                                               : "--accumulate " + a.accumulators.front(),
                        dump, formats);
  }
  if (a.policy.empty() && !a.set.empty())
    throw ConfigError("--set " + a.set.front() +
                      ": changes a policy, and --policy names none; expected both or neither");
  study::WhatIfOptions options;
  options.folder = a.folder;
  if (formats.size() > 1)
    throw ConfigError("--format " + a.formats[1] +
                      ": a run is judged by one plain format; several are for dumps");
  if (!formats.empty()) options.format = std::get<NumberFormat>(formats.front());
  if (a.scale)
    // A scale is fp32 in a run, subnormals included.
    options.scale = Checked(*a.scale, FLT_TRUE_MIN, FLT_MAX, "--scale",
                            "a positive number that fp32 can hold, for example 1024");
  options.policy = a.policy;
  options.overrides = OverridesOf(a.set);
  options.view = a.view.View();
  study::WhatIf(options, std::cout, std::cerr);
  return 0;
}

// The bounds are those of the keys underflow_target and headroom_bits, which the advice may write.
int RecommendFor(const study::RecommendOptions& options) {
  Checked(options.underflow_target, 0, 1, "--underflow-target",
          "a share as in the YAML, 0 to 1 (0.001: 0.1 %)");
  Checked(options.headroom_bits, 0, 64, "--headroom", "bits, 0 to 64");
  CheckOutput("--yaml", options.yaml);
  study::Recommend(options, std::cout);
  return 0;
}

// The exit code is that of a signal that ended the watching, else 0.
int WatchRun(const study::WatchOptions& options) {
  Checked(options.interval, 0.1, 3600, "--interval", "seconds, 0.1 to 3600");
  return study::Watch(options);
}

// The folder and --dump exclude each other; that is checked after the parsing, since the folder may
// stand among the values of --set.
Command AddWhatIf(CLI::App& app) {
  auto a = std::make_shared<WhatIfArguments>();
  CLI::App* command =
      Add(app, "what-if", "what recipes, or another format, scale or policy would have lost",
          "  ada-train what-if runs/gpt2_jargon_quick\n"
          "  ada-train what-if runs/fashion_quickstart --format fp8_e5m2 --scale 1024\n"
          "  ada-train what-if runs/fashion_quickstart --policy dynamic --set "
          "scaling.growth_interval=100\n"
          "  ada-train what-if --dump runs/a/dump/step-00000100.safetensors --format mxfp8_e4m3 "
          "--format nvfp4");
  AddFolder(*command, a->folder,
            "a run; without an option every recipe is judged in its newest dump (log.dump_every), "
            "a plain format, scale or policy by its histograms (log.histogram_every)");
  AddValue(*command, "--recipe", a->recipes, "RECIPE",
           "judge this recipe alone, or several (default: all)")
      ->allow_extra_args(false);
  AddValue(*command, "--dump", a->dump, "FILE",
           "instead of a run: a dump (log.dump), whose operands are judged tensor by tensor");
  AddValue(*command, "--format", a->formats, "FORMAT",
           "instead of each tensor's own; a name or '{exponent: 4, mantissa: 3}'; of a\n"
           "dump several. Block-scaled ones are judged in the run's newest dump")
      // One value for each --format: what follows the value is an operand or another option.
      ->allow_extra_args(false);
  AddAccumulate(*command, a->accumulators,
                "of a dump, or the run's newest: what sums would lose by such an");
  AddValue(*command, "--scale", a->scale, "S", "that every tensor would carry (default: its own)");
  AddValue(*command, "--policy", a->policy, "POLICY",
           "a scaling policy that would choose the scales");
  AddSet(*command, a->set, "--set scaling.growth_interval=9, any key of the policy");
  AddView(*command, a->view);
  AddJson(*command, a->view.json);
  return {command, [a] { return WhatIf(*a); }};
}

// Both numbers have the defaults of RecommendOptions, which the help repeats.
Command AddRecommend(CLI::App& app) {
  auto a = std::make_shared<study::RecommendOptions>();
  CLI::App* command =
      Add(app, "recommend",
          "the scales and formats that would serve each gradient, behind what advise decides",
          "  ada-train recommend runs/fashion_quickstart\n"
          "  ada-train recommend runs/fashion_quickstart --underflow-target 1e-4 --headroom 4");
  AddFolder(*command, a->folder, "a run with histograms (log.histogram_every)");
  command->get_option("RUN_DIR")->required();
  AddValue(*command, "--underflow-target", a->underflow_target, "SHARE",
           "share of a tensor's non-zero values that may underflow (default 0.001)");
  AddValue(*command, "--headroom", a->headroom_bits, "BITS",
           "powers of two between the largest value seen and overflow (default 2)");
  AddValue(*command, "--yaml", a->yaml, "FILE",
           "write the recommended sections there, for train --with");
  AddJson(*command, a->json);
  return {command, [a] { return RecommendFor(*a); }};
}

// The fragment of --yaml holds all changes, or only a comment, which train --with reads as no
// change.
Command AddAdvise(CLI::App& app) {
  auto a = std::make_shared<study::AdviseOptions>();
  CLI::App* command = Add(app, "advise", "what to change after a run, in five lines at most",
                          "  ada-train advise runs/fashion_quickstart\n"
                          "  ada-train advise runs/fashion_quickstart --yaml better.yaml");
  AddFolder(*command, a->folder, "a run that has ended, or goes on");
  command->get_option("RUN_DIR")->required();
  AddValue(*command, "--yaml", a->yaml, "FILE",
           "write the changes there, for train --with (none: a comment)");
  AddJson(*command, a->json);
  return {command, [a] {
            CheckOutput("--yaml", a->yaml);
            study::Advise(*a, std::cout);
            return 0;
          }};
}

// Two runs are compared in full, more in a line each.
int Compare(const CompareArguments& a) {
  const std::size_t runs = a.runs.size();
  if (runs < 2 || runs > study::kMostCompared)
    throw ConfigError("compare: got " + Counted(static_cast<std::int64_t>(runs), "run") +
                      "; expected 2 to " + std::to_string(study::kMostCompared));
  if (a.json)
    study::CompareJson(a.runs, std::cout);
  else if (runs == 2)
    study::Compare(a.runs[0], a.runs[1], std::cout, a.all);
  else
    study::CompareMany(a.runs, std::cout);
  return 0;
}

// The folders are required operands; their order is that of the columns.
Command AddCompare(CLI::App& app) {
  auto a = std::make_shared<CompareArguments>();
  CLI::App* command =
      Add(app, "compare", "runs side by side, and the first step at which they part",
          "  ada-train compare runs/none runs/adaptive\n"
          "  ada-train compare runs/seed1 runs/seed2 runs/none | less");
  AddValue(*command, "RUN", a->runs, "",
           "folders of runs: two, side by side layer by layer; up to 24, a line each")
      ->required();
  command->add_flag("--all", a->all,
                    "of two runs all layers that differ, not only those that differ most");
  AddJson(*command, a->json);
  return {command, [a] { return Compare(*a); }};
}

// The table is drawn by study::Watch, which also decides whether there is a screen to draw on.
Command AddWatch(CLI::App& app) {
  auto a = std::make_shared<study::WatchOptions>();
  CLI::App* command = Add(app, "watch", "a live table of a run's layers, from its folder",
                          "  ada-train watch runs/fashion_quickstart\n"
                          "  ada-train watch runs/fashion_quickstart --once");
  AddFolder(*command, a->folder, "a run that goes on, or has ended");
  command->get_option("RUN_DIR")->required();
  AddValue(*command, "--interval", a->interval, "SECONDS", "seconds between looks (default 1)");
  command->add_flag("--once", a->once, "one look, then the end");
  return {command, [a] { return WatchRun(*a); }};
}

}  // namespace

Commands AddRunCommands(CLI::App& app) {
  return {AddWhatIf(app), AddRecommend(app), AddAdvise(app), AddCompare(app), AddWatch(app)};
}

}  // namespace ada::cli
