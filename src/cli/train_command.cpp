// train: from FILE, or from the folder of a run that goes on; rates: the learning rate of each
// step, without data.
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/load.h"
#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "run/plan/plan_reports.h"
#include "run/run.h"
#include "telemetry/log.h"

namespace ada::cli {
namespace {

// One object for the options of the program and those of `train`, of which only one set can be
// given.
struct TrainArguments : ExperimentArguments {
  // `resume_from` is the value of --resume, `with` a file of keys.
  std::string resume_from, with, log_level = "info";
  // An option without a value (--resume) can be distinguished from a missing one only by its count.
  CLI::Option *resume = nullptr, *resume_without_word = nullptr;
  bool overwrite = false, dry_run = false, measure = false, json = false, print_config = false;
  bool quiet = false, verbose = false, no_progress = false;

  bool resumes() const { return resume->count() > 0 || resume_without_word->count() > 0; }
};

// Keys that are changed most; whatever has no short form is set by --set.
std::vector<ShortOption> TrainOptions() {
  using Value = ShortOption::Value;
  std::vector<ShortOption> all = {
      {"--epochs", "train.epochs", "N", "how often every image is seen", Value::kWhole},
      {"--lr", "optimizer.lr", "RATE", "the learning rate", Value::kNumber},
      {"--batch-size", "data.batch_size", "N", "images of a step", Value::kWhole},
      {"--seed", "seed", "N", "key of all random numbers", Value::kWhole},
      {"--policy", "scaling.policy", "POLICY", "how the loss is scaled", Value::kText}};
  for (const ShortOption& option : DataAndMachineOptions()) all.push_back(option);
  all.push_back({"--output", "output", "DIR", "the run's folder; default runs/NAME", Value::kText});
  all.push_back({"--name", "name", "NAME", "the run's name; default: the file's", Value::kText});
  return all;
}

// Called twice, for the program and for the command. Returns --resume.
CLI::Option* AddTrainOptions(CLI::App& app, TrainArguments& a) {
  AddValue(app, "-c,--config", a.config, "FILE", "the same as FILE");
  CLI::Option* resume = AddValue(app, "--resume", a.resume_from, "[DIR]",
                                 "go on from the newest good checkpoint, or start;\n"
                                 "a run's folder is enough: it knows its configuration")
                            ->expected(0, 1);
  AddValue(app, "--with", a.with, "FILE",
           "keys that replace those of FILE, as advise and recommend\nwrite with --yaml; "
           "comments alone change nothing");
  app.add_flag("--overwrite", a.overwrite, "delete the old run in the folder first")
      ->excludes(resume);
  app.add_flag("--dry-run", a.dry_run,
               "check config and data, print layers and memory; train nothing");
  app.add_flag("--measure", a.measure,
               "with --dry-run: three steps on made-up images, and what an epoch will take");
  app.add_flag("--json", a.json, "with --dry-run: JSON instead of text (configs/JSON.md)");
  app.add_flag("--print-config", a.print_config, "print the resolved configuration and stop");
  AddOverrides(app, a, TrainOptions());
  app.add_flag("--quiet", a.quiet, "warnings and errors only");
  app.add_flag("--verbose", a.verbose, "what --log-level debug shows");
  app.add_flag("--no-progress", a.no_progress, "no progress line");
  AddValue(app, "--log-level", a.log_level, "LEVEL", "trace, debug, info, warning or error");
  return resume;
}

// --quiet and --verbose beat --log-level. Throws ConfigError for an unknown level.
telemetry::LogLevel LevelOf(const TrainArguments& a) {
  if (a.quiet) return telemetry::LogLevel::kWarning;
  if (a.verbose) return telemetry::LogLevel::kDebug;
  return telemetry::ParseLogLevel(a.log_level);
}

// Returns the folder after --resume, without trailing slashes; "": none. --resume has at most
// one value, which may have been meant as FILE: a folder is a run, a file is the
// configuration and is moved to a.config. If FILE is not given, the configuration is the one
// in the folder.
std::string TakeResumeFolder(TrainArguments& a) {
  std::string folder = a.resume_from;
  if (folder.empty()) return "";
  if (!IsFolder(folder)) {
    std::error_code error;
    if (a.config.empty() && std::filesystem::exists(folder, error)) {
      a.config = folder;
      return "";
    }
    throw ConfigError("--resume " + folder + ": no such folder; expected that of a run");
  }
  for (const std::string& item : a.set)
    if (item.starts_with("output="))
      throw ConfigError("--resume " + folder + ": names the run's folder, and so does --output (" +
                        item + "); expected one of them");
  // The folder is compared with `output` and shown in messages.
  while (folder.size() > 1 && folder.back() == '/') folder.pop_back();
  if (!a.config.empty()) return folder;
  a.config = folder + "/config.yaml";
  std::error_code error;
  if (!std::filesystem::exists(a.config, error)) {
    ListFolder(folder);  // one that may not be looked into is told as that
    throw ConfigError("--resume " + folder +
                      ": holds no config.yaml, so it is no run's folder; "
                      "expected one, or FILE as well");
  }
  return folder;
}

// The configuration that the arguments ask for, with its notes. It comes from FILE or --config,
// else from the folder of --resume. Keys of --with come before those of --set, which win. Throws
// ConfigError where nothing names one.
config::Loaded LoadFor(TrainArguments& a) {
  if (a.config.empty()) TakeOperand(a.file, a.set);
  TakeFile(a);
  const std::string folder = TakeResumeFolder(a);
  if (a.config.empty())
    throw ConfigError(
        "FILE is missing: ada-train train FILE, or --config FILE, or --resume DIR of a run; "
        "`ada-train help train` shows examples");
  if (IsFolder(a.config))
    throw ConfigError(a.config + ": is a folder; to go on with a run: --resume " +
                      ShellPath(a.config));
  config::Loaded loaded =
      LoadConfig(a, a.with.empty() ? config::Overrides{} : config::OverridesFrom(a.with));
  config::FillDefaults(loaded.config);
  std::error_code error;  // a folder that was moved since
  // The stored configuration names the folder in which the run was written; the command line tells
  // where it is now.
  if (!folder.empty() && !std::filesystem::equivalent(loaded.config.output, folder, error))
    loaded.config.output = folder;
  return loaded;
}

// All processes of a run come here with the same arguments; run/run.cpp lets them take part.
int Train(TrainArguments& a, parallel::World& world, const std::string& program) {
  // With several processes only the first one prints; an error that ends one of the others is
  // printed all the same.
  const bool is_first = world.rank() == 0;
  telemetry::Log log(is_first ? LevelOf(a) : telemetry::LogLevel::kError);
  // CLI11 sees it only where both stand on the same side of the word `train`.
  if (a.resumes() && a.overwrite) throw ConfigError("--resume excludes --overwrite");
  const config::Loaded loaded = LoadFor(a);
  for (const std::string& note : loaded.notes) log.Info(note);
  // All processes have read the configuration, so all fail alike where it is wrong.
  if ((a.print_config || a.dry_run) && !is_first) return 0;
  if (a.print_config) {
    std::cout << config::ToYaml(loaded.config);
    return 0;
  }
  if (a.json && !a.dry_run) throw ConfigError("--json: belongs to --dry-run");
  if (a.measure && !a.dry_run) throw ConfigError("--measure: belongs to --dry-run");
  if (a.dry_run) {
    if (a.json) {
      run::DryRun(loaded.config, a.measure, std::cout, true);
      return 0;
    }
    const TerminalText visible(std::cout);
    run::DryRun(loaded.config, a.measure, std::cout);
    return 0;
  }
  const bool progress = !a.no_progress && !a.quiet && is_first;
  return run::Train(loaded.config, {a.resumes(), a.overwrite, progress, &world, program}, log);
}

// `every` is the distance of rows in steps.
struct RatesArguments : ExperimentArguments {
  std::optional<std::int64_t> steps_per_epoch;  // unset: those of the data set
  std::int64_t every = 1;
};

// With --steps-per-epoch no data set is opened, so rates can be printed on any machine.
int Rates(RatesArguments& a) {
  TakeExperiment(a, "FILE", "rates");
  // With the most epochs that a run can have, steps are still counted in 64 bits.
  constexpr std::int64_t kMostStepsOfEpoch = 1'000'000'000'000;
  const std::int64_t asked = a.steps_per_epoch.value_or(1);
  if (asked < 1 || asked > kMostStepsOfEpoch || a.every < 1)
    throw ConfigError(
        "--steps-per-epoch and --every: expected whole numbers from 1, steps of an epoch up to "
        "1000000000000");
  run::PrintRates(ConfigOf(a), a.steps_per_epoch.value_or(0), a.every, std::cout);
  return 0;
}

}  // namespace

Commands AddTrainCommands(CLI::App& app, parallel::World& world, const std::string& program) {
  auto a = std::make_shared<TrainArguments>();
  CLI::App* train = Add(app, "train", "train (the same as giving no command)",
                        "  ada-train train configs/resnet20_cifar.yaml --epochs 10 --lr 0.05\n"
                        "  ada-train train --resume runs/resnet20_cifar");
  AddValue(*train, "FILE", a->file, "", "the experiment (YAML or JSON)");
  a->resume_without_word = AddTrainOptions(app, *a);
  a->resume = AddTrainOptions(*train, *a);
  return {{train, [a, &world, program] { return Train(*a, world, program); }}};
}

// The rates are those of a run with this configuration that skips no step.
Commands AddRatesCommands(CLI::App& app) {
  auto a = std::make_shared<RatesArguments>();
  CLI::App* rates =
      Add(app, "rates", "the learning rate of each step, as CSV",
          "  ada-train rates configs/resnet20_cifar.yaml --steps-per-epoch 390 --every 390\n"
          "  ada-train rates a.yaml --set schedule.kind=one_cycle");
  AddExperiment(*rates, *a);
  AddValue(*rates, "--steps-per-epoch", a->steps_per_epoch, "N",
           "instead of what the data set gives, which is then not looked at");
  AddValue(*rates, "--every", a->every, "N", "steps between two rows; the last has one");
  AddOverrides(*rates, *a, {});
  return {{rates, [a] { return Rates(*a); }}};
}

}  // namespace ada::cli
