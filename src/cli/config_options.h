// What commands share that read a configuration: where it is, what changes it, and how it is read.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "config/load.h"

namespace ada::cli {

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

// Takes FILE, an operand, for a.config. Throws ConfigError where both are given.
void TakeFile(ConfigArguments& a, const std::string& file);

// The configuration that `a` names: a file, or else a shipped one; then `a.config` becomes its
// path, and a note says so. `before` are overrides ahead of those of --set. Throws ConfigError
// where neither is there, and as config::Load does.
config::Loaded LoadConfig(ConfigArguments& a, config::Overrides before = {});
// The same, of commands whose output goes to stdout: the notes go to stderr.
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

}  // namespace ada::cli
