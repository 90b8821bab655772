// The command line: its commands, and what their declarations share.
// Each file *_command.cpp declares the options of one command or a few, checks what CLI11 cannot,
// fills in a struct of options, and calls one function of study/ or train/. Nothing is computed
// here.
#pragma once
#include <CLI/CLI.hpp>
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
Commands AddEvaluateCommands(CLI::App& app);
Commands AddPredictCommands(CLI::App& app);
Commands AddGenerateCommands(CLI::App& app);
// rates: the learning rate of each step.
Commands AddRatesCommands(CLI::App& app);
// inspect, convert, replay: files of others.
Commands AddFileCommands(CLI::App& app);
// matmul: one linear layer by itself.
Commands AddMatmulCommands(CLI::App& app);
// picture: one picture as the loader makes it.
Commands AddPictureCommands(CLI::App& app);
// score: metrics of detections and label images.
Commands AddScoreCommands(CLI::App& app);
// what-if, recommend, advise, compare, watch: folders of runs.
Commands AddRunCommands(CLI::App& app);
// blame, assign: forks of a training.
Commands AddBlameCommands(CLI::App& app);
// choose, ablate: trainings in several formats.
Commands AddChooseCommands(CLI::App& app);
// mismatch: predictions under two precisions.
Commands AddMismatchCommands(CLI::App& app);
// models, policies, formats, recipes, datasets, schema.
Commands AddListCommands(CLI::App& app);
// configs, fetch: what comes with the program.
Commands AddShippedCommands(CLI::App& app);
// report, sweep, from-torch, to-torch, to-onnx: Python tools.
Commands AddScriptCommands(CLI::App& app);
// completion: for shells.
Commands AddCompletionCommands(CLI::App& app);

// `--color WHEN`, of the program and of each command.
// The choice takes effect as it is parsed, so that it holds for messages about later arguments.
void AddColor(CLI::App& app);
// A command whose help ends with `examples`: two lines, "  ada-train NAME ...".
CLI::App* Add(CLI::App& app, const char* name, const char* what, const std::string& examples);

// `--set KEY=VALUE ...` into `set`, `--format FORMAT` into `format`; both outlive the parsing.
// The items come in the order of the command line, among those of options that are short for a key.
void AddSet(CLI::App& app, std::vector<std::string>& set, const char* example);
void AddFormat(CLI::App& app, std::string& format, const std::string& what);

// The overrides of `--set`, in its order. Throws ConfigError for what is no KEY=VALUE.
config::Overrides OverridesOf(const std::vector<std::string>& set);

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
// "; did you mean NAME?", or nothing where `nearest` is empty.
std::string DidYouMean(const std::string& nearest);
// The same of a command.
std::string NearestCommand(const CLI::App& app, const std::string& name);

// Returns `value` of `option`; throws ConfigError with what was `expected` if it is outside of
// low..high or not a number. `expected` follows the word "expected" in the message: "a share, 0 to
// 1".
double Checked(double value, double low, double high, const char* option, const char* expected);

// "0.1%" or "0.001": a share without a unit, or in percent. Throws ConfigError for anything that is
// no decimal number above 0.
double ShareOf(const std::string& option, const std::string& text);

// The formats of an option whose list was cut at its commas: those within a map are its own.
std::vector<std::string> WholeFormats(const std::vector<std::string>& pieces);

}  // namespace ada::cli
