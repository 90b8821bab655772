// The command line: its commands, and what their declarations share.
// Each file *_command.cpp declares the options of one command or a few, checks what CLI11 cannot,
// fills in a struct of options, and calls one function of study/ or train/. Nothing is computed
// here.
#pragma once
#include <CLI/CLI.hpp>
#include <concepts>
#include <functional>
#include <string>
#include <vector>

#include "config/load.h"
#include "parallel/world.h"

namespace ada::cli {

// From the program's arguments to the command that they name: parses and runs. Returns the exit
// code: 0, or that of the command. Throws ConfigError where the arguments cannot be parsed, and
// what the command throws. `world`: the processes that were started together. All of them
// train; everything else is done by the first.
// Called once, by main.cpp, which turns errors into exit codes and messages.
int Dispatch(int argc, char** argv, parallel::World& world);

// A command of the command line and what it does once the arguments are parsed. `run` owns what the
// options write to, by a shared pointer, so it may be copied.
struct Command {
  CLI::App* app;
  std::function<int()> run;  // the exit code; throws ada::Error
};
using Commands = std::vector<Command>;

// Each declares its commands' options on `app`; what a command's `run` does is done after parsing,
// if the command was given. The texts that parsing fills in live in what is returned: keep it until
// then.
//
// train; its options also on `app` itself: the same without a word, but for FILE.
// program: as it was called, for the command that resumes a run.
// The first command in the list is `train`: Dispatch relies on it.
Commands AddTrainCommands(CLI::App& app, parallel::World& world,
                          const std::string& program = "ada-train");
// evaluate, predict, generate: by trained weights.
Commands AddEvaluationCommands(CLI::App& app);
// rates: the learning rate of each step.
Commands AddRatesCommands(CLI::App& app);
// what-if, recommend, advise, compare, watch: folders of runs.
Commands AddRunCommands(CLI::App& app);
// choose, ablate, mismatch, blame, assign: trainings and forks that tell formats apart.
Commands AddDecisionCommands(CLI::App& app);
// inspect, convert, replay: files of others.
Commands AddFileCommands(CLI::App& app);
// matmul: one linear layer by itself.
Commands AddMatmulCommands(CLI::App& app);
// picture, score: pictures, and metrics of what was found in them.
Commands AddPictureCommands(CLI::App& app);
// models, policies, formats, recipes, datasets, schema.
Commands AddListCommands(CLI::App& app);
// configs, fetch, report, sweep, from-torch, to-torch, to-onnx: what comes with the program.
Commands AddShippedCommands(CLI::App& app);
// completion: for shells.
Commands AddCompletionCommands(CLI::App& app);

// `--color WHEN`, of the program and of each command.
// The choice takes effect as it is parsed, so that it holds for messages about later arguments.
void AddColor(CLI::App& app);
// A command whose help ends with `examples`: two lines, "  ada-train NAME ...".
CLI::App* Add(CLI::App& app, const char* name, const char* what, const std::string& examples);
// An option with a value, or an operand, which the help says by `type` and `what`. `value` outlives
// the parsing.
template <class T>
CLI::Option* AddValue(CLI::App& app, const std::string& name, T& value, const std::string& type,
                      const std::string& what) {
  return app.add_option(name, value, what)->type_name(type);
}

// `--set KEY=VALUE ...` into `set`, `--format FORMAT` into `format`; both outlive the parsing.
// The items come in the order of the command line, among those of options that are short for a key.
void AddSet(CLI::App& app, std::vector<std::string>& set, const char* example);
void AddFormat(CLI::App& app, std::string& format, const std::string& what);

// The overrides of `--set`, in its order, after those before it. Throws ConfigError for what is no
// KEY=VALUE.
config::Overrides OverridesOf(const std::vector<std::string>& set, config::Overrides before = {});

// --accumulate RULE, several times: accumulators that sums are judged by. what: ends before "such
// an accumulator".
void AddAccumulate(CLI::App& app, std::vector<std::string>& rules, const std::string& what);
// Throws ConfigError for one that leaves all sums in fp32.
std::vector<config::AccumulatesConfig> ReadAccumulators(const std::vector<std::string>& rules);

// --set consumes all arguments that follow it: if `operand` is empty, the first of `set` that is
// not KEY=VALUE is moved into it; if there is none it stays empty.
void TakeOperand(std::string& operand, std::vector<std::string>& set);
// The same, but throws ConfigError naming `what` if there is none.
void RequireOperand(std::string& operand, std::vector<std::string>& set, const std::string& what,
                    const std::string& command);

// The problem with arguments that cannot be parsed, what was probably meant, and where to read
// more. `train`: the command whose options `app` also has.
std::string UsageProblem(const CLI::App& app, const CLI::App& train, const CLI::ParseError& error);
// "; did you mean NAME?" of a command; empty where none is near.
std::string NearestCommand(const CLI::App& app, const std::string& name);

// Returns `value` of `option`; throws ConfigError with what was `expected` if it is outside of
// low..high or not a number. `expected` follows the word "expected" in the message: "a share, 0 to
// 1".
double Checked(double value, double low, double high, const char* option, const char* expected);
template <class Whole>
requires std::integral<Whole> Whole Checked(Whole value, double low, double high,
                                            const char* option, const char* expected) {
  return static_cast<Whole>(Checked(static_cast<double>(value), low, high, option, expected));
}

// "0.1%" or "0.001": a share without a unit, or in percent. Throws ConfigError for anything that is
// no decimal number above 0.
double ShareOf(const std::string& option, const std::string& text);

// The formats of an option whose list was cut at its commas: those within a map are its own.
std::vector<std::string> WholeFormats(const std::vector<std::string>& pieces);

// --- Commands that read a configuration ---

// Commands derive their arguments from it. Options write to it while they are parsed, so it must
// live as long as the CLI::App.
struct ConfigArguments {
  std::string config;
  // KEY=VALUE: of --set and of the options that are short for a key, in the order of the command
  // line.
  std::vector<std::string> set;
};

// An option that is short for a key of the YAML.
// The texts are literals; `key` is a path as --set has it.
struct ShortOption {
  enum class Value {
    kText,    // taken as it is: a path or a name
    kWhole,   // a whole number
    kNumber,  // a number
    kYaml,    // any YAML that is allowed after the key
  };
  const char *name, *key, *type;
  const char* what;
  Value value;
};

// --set, and each of `shorts`; all write into a.set.
// `a` must outlive the parsing. The help of a short option names its key.
void AddOverrides(CLI::App& app, ConfigArguments& a, const std::vector<ShortOption>& shorts);

// Those that training and evaluation have in common: --device and --threads, --data, --format.
std::vector<ShortOption> MachineOptions();
std::vector<ShortOption> DataOptions();
std::vector<ShortOption> DataAndMachineOptions();

// They add what commands that evaluate share: what names the weights (WeightsAt), --best, and
// --config. `more` is said after what all of them say.
void AddWeights(CLI::App& app, const char* name, const char* type, std::string& weights,
                const char* more = "");
void AddBest(CLI::App& app, bool& best);
void AddConfig(CLI::App& app, ConfigArguments& a, const char* more = "");

// The file may be named by an operand as well.
struct ExperimentArguments : ConfigArguments {
  std::string file;
};
// The operand FILE (or CONFIG), and --config, which is the same.
void AddExperiment(CLI::App& app, ExperimentArguments& a, const std::string& operand = "FILE");
// Takes the operand for a.config. Throws ConfigError where both are given.
void TakeFile(ExperimentArguments& a);
// The same, but throws ConfigError as well where neither is.
void TakeExperiment(ExperimentArguments& a, const std::string& operand, const std::string& command);

// The configuration that `a` names: a file, or else a shipped one; then `a.config` becomes its
// path, and a note says so. `before` are overrides ahead of those of --set. Throws ConfigError
// where neither is there, and as config::Load does.
config::Loaded LoadConfig(ConfigArguments& a, config::Overrides before = {});
// Returns the configuration. Its notes say what an override dropped; stdout may be CSV, so they go
// to stderr.
config::Config PrintNotes(config::Loaded loaded);
// Both, of commands whose output goes to stdout.
config::Config ConfigOf(ConfigArguments& a, config::Overrides before = {});
// The same, of commands that need every key; of `checkpoint` (the path of one) its own
// configuration, where `a` names none.
config::Config FilledConfigOf(ConfigArguments& a, const std::string& checkpoint = "",
                              const config::Overrides& before = {});

// The same of weights that are evaluated (empty: the network as it starts), with the precision that
// precision.schedule gives the step of their checkpoint.
config::Config EvaluatedConfigOf(ConfigArguments& a, const std::string& weights,
                                 const config::Overrides& before = {});

// The file of weights that `path` means: itself, or in a run's folder the newest checkpoint, or the
// best. Throws ConfigError where the best is asked for of what is no folder, and for a
// configuration.
std::string WeightsAt(const std::string& path, bool best);

// --- The configurations that come with the program ---

// They lie in PREFIX/share/ada-train beside an installed PREFIX/bin/ada-train, and in the source
// tree above a build folder. How this program came here: "as a package", "as a wheel", "below
// PREFIX", "source tree", and "alone" where nothing that comes with it is found next to it.
std::string Installation();

// The names of all shipped configurations, in order: "lenet_fashion.yaml", "sweep/none.yaml".
std::vector<std::string> ShippedNames();

// The path of the shipped configuration that is called `name`, with or without ".yaml" and a
// leading "configs/". "": there is none.
std::string ShippedPath(const std::string& name);

}  // namespace ada::cli
