// What commands share that read a configuration: where it is, and what changes it.
#pragma once
#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace ada::cli {

struct ConfigArguments {
  std::string config;
  // KEY=VALUE: of --set and of the options that are short for a key, in the order of the command
  // line.
  std::vector<std::string> set;
};

// An option that is short for a key of the YAML.
struct ShortOption {
  enum class Value {
    kText,    // taken as it is: a path or a name
    kWhole,   // a whole number
    kNumber,  // a number
    kYaml,    // whatever may stand behind the key
  };
  const char *name, *key, *type;
  const char* what;
  Value value;
};

// --set, and each of `shorts`; all write into a.set.
void AddOverrides(CLI::App& app, ConfigArguments& a, const std::vector<ShortOption>& shorts);

// Those that training and evaluation have in common: --device and --threads, --data, --format.
std::vector<ShortOption> MachineOptions();
std::vector<ShortOption> DataOptions();

}  // namespace ada::cli
