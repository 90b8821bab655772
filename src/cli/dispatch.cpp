// The commands together, and which of them is run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "cli/commands.h"
#include "cli/terminal_text.h"
#include "core/error.h"
#include "train/run.h"

namespace ada::cli {
namespace {

constexpr char kDescription[] =
    "Trains neural networks in emulated low precision and shows, layer by layer, what the "
    "number\n"
    "format and the loss-scaling policy do.";
constexpr char kExamples[] =
    "Examples:\n"
    "  ada-train --config configs/fashion_quickstart.yaml\n"
    "  ada-train --config configs/resnet20_cifar_quick.yaml --set scaling.policy=fixed --set "
    "scaling.scale=1024 "
    "--name fixed1024";

Commands AddCommands(CLI::App& app) {
  Commands all;
  for (const auto add : {AddTrainCommands, AddFileCommands, AddRunCommands, AddListCommands})
    for (Command& command : add(app)) all.push_back(std::move(command));
  return all;
}

// Options in front of a command are those of training: no other command sees them.
void RefuseOptionsBefore(const CLI::App& app, const CLI::App& command) {
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0)
      throw ConfigError(option->get_name() + " stands before the command " + command.get_name() +
                        "; expected behind it, if it is one of its options: `ada-train " +
                        command.get_name() + " --help` lists them");
}

int PrintVersions() {
  for (const train::Version& v : train::Versions()) std::cout << v.name << ' ' << v.value << '\n';
  return 0;
}

}  // namespace

int Dispatch(int argc, char** argv) {
  const TerminalText out(std::cout, STDOUT_FILENO), errors(std::cerr, STDERR_FILENO);
  CLI::App app(kDescription);
  app.footer(kExamples);
  app.require_subcommand(0, 1);
  bool version = false;
  app.add_flag("--version", version, "version, commit, compiler, backends and libraries");
  const Commands commands = AddCommands(app);
  const Command& train = commands.front();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e, std::cout, std::cerr) == 0 ? 0 : 2;
  }
  if (version) return PrintVersions();
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (&command != &train) RefuseOptionsBefore(app, *command.app);
    return command.run();
  }
  return train.run();
}

}  // namespace ada::cli
