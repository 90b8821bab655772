// The commands of the command line: each function declares its options on `app`; what it returns is
// run after parsing if its command was given. The texts that parsing fills in live in what is
// returned: keep it until then.
#pragma once
#include <CLI/CLI.hpp>
#include <functional>
#include <vector>

namespace ada::cli {

struct Command {
  CLI::App* app;
  std::function<int()> run;  // the exit code; throws ada::Error
};
using Commands = std::vector<Command>;

// train (its options also on `app` itself: the same without a word) and evaluate.
Commands AddTrainCommands(CLI::App& app);
// inspect, convert, replay: files of others.
Commands AddFileCommands(CLI::App& app);
// what-if, recommend, compare, watch: folders of runs.
Commands AddRunCommands(CLI::App& app);
// models, policies, formats, datasets, schema.
Commands AddListCommands(CLI::App& app);

}  // namespace ada::cli
