// The commands together, `help`, and which of them is run.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/output.h"
#include "error.h"
#include "run/about/about.h"

namespace ada::cli {
namespace {

constexpr char kDescription[] =
    "Trains neural networks in emulated low precision and shows, layer by layer, what the number\n"
    "format and the loss-scaling policy do.";
constexpr char kFooter[] =
    "`ada-train help COMMAND` says what a command takes; without a command the options are those "
    "of train.\n"
    "Examples:\n"
    "  ada-train train configs/fashion_quickstart.yaml\n"
    "  ada-train train configs/resnet20_cifar_quick.yaml --policy dynamic --epochs 4 --name "
    "dynamic";

// What the commands are for, as the help groups them; what no group names goes to the last.
struct Group {
  const char* title;
  std::vector<const char*> commands;
};
const Group kGroups[] = {
    {"Train", {"train", "evaluate", "predict", "generate"}},
    {"Look", {"watch", "report", "compare", "inspect", "matmul", "rates", "score"}},
    {"Decide",
     {"choose", "ablate", "advise", "recommend", "what-if", "mismatch", "blame", "assign", "replay",
      "sweep"}},
    {"Files", {}},
};

const char* GroupOf(const std::string& command) {
  for (const Group& group : kGroups)
    for (const char* name : group.commands)
      if (command == name) return group.title;
  return std::end(kGroups)[-1].title;
}

// The order is that of the help, whose groups stand in the order of their first commands.
Commands AddCommands(CLI::App& app, parallel::World& world, const std::string& program) {
  Commands all = AddTrainCommands(app, world, program);
  for (const auto add :
       {AddEvaluationCommands, AddRatesCommands, AddRunCommands, AddDecisionCommands,
        AddFileCommands, AddMatmulCommands, AddPictureCommands, AddListCommands, AddShippedCommands,
        AddCompletionCommands})
    for (Command& command : add(app)) all.push_back(std::move(command));
  return all;
}

// Throws ConfigError with the nearest name if there is no such command.
const CLI::App& CommandNamed(const CLI::App& app, const std::string& name) {
  for (const CLI::App* command : app.get_subcommands({}))
    if (command->get_name() == name) return *command;
  throw ConfigError("help: " + name + " is no command" + NearestCommand(app, name));
}

// The program's page: without the options of training, which stand in the help of train.
// Options are removed from `app`, which is not used for parsing after this.
int PrintHelp(CLI::App& app) {
  // The options of train are also those of the program, for a command line without a word.
  const auto of_training = [](const CLI::Option* option) {
    const std::string name = option->get_name();
    return name != "--help" && name != "--version" && name != "--color";
  };
  for (CLI::Option* option : app.get_options(of_training)) app.remove_option(option);
  std::cout << app.get_formatter()->make_help(&app, app.get_name(), CLI::AppFormatMode::Normal);
  return 0;
}

// Returns the command `help`, which needs `app` when it runs: all commands are there by then.
Command AddHelp(CLI::App& app) {
  auto name = std::make_shared<std::string>();
  CLI::App* help = Add(app, "help", "what the program or a command takes",
                       "  ada-train help\n"
                       "  ada-train help train");
  AddValue(*help, "COMMAND", *name, "", "one of the commands");
  return {help, [name, &app] {
            if (name->empty()) return PrintHelp(app);
            std::cout << CommandNamed(app, *name).help(app.get_name());
            return 0;
          }};
}

// Options in front of a command, but --color, are those of training: no other command sees them.
void RefuseOptionsBefore(const CLI::App& app, const CLI::App& command) {
  for (const CLI::Option* option : app.get_options())
    if (option->count() > 0 && option->get_name() != "--color")
      // Such an option would be parsed into the arguments of train and be forgotten.
      throw ConfigError(option->get_name() + " stands before the command " + command.get_name() +
                        "; expected after it, if it is one of its options: `ada-train " +
                        command.get_name() + " --help` lists them");
}

// A value that is there and says nothing, as where a script's variable is not set.
void RefuseEmptyValues(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_expected_min() == 0) continue;  // a flag, or a value that may be missing
    for (const std::string& value : option->results())
      if (value.empty())
        throw ConfigError(option->get_name() + ": expected " +
                          (option->get_type_name().empty() ? "a value" : option->get_type_name()) +
                          "; got empty quotes");
  }
}

// One line a part, "NAME VALUE", for reports of faults and for programs.
int PrintVersions(const parallel::World& world) {
  for (const run::Version& v : run::Versions(world)) std::cout << v.name << ' ' << v.value << '\n';
  std::cout << "installed " << Installation() << '\n';
  return 0;
}

}  // namespace

int Dispatch(int argc, char** argv, parallel::World& world) {
  // They come first, so that help and errors of the parsing are filtered as well, and go last.
  const TerminalText out(std::cout, STDOUT_FILENO), errors(std::cerr, STDERR_FILENO);
  CLI::App app(kDescription);
  app.footer(kFooter);
  app.require_subcommand(0, 1);
  app.formatter(MakeHelpFormat());  // of commands that are added later, too
  // Every process parses the same arguments; what prints is done by one.
  const bool is_first = world.rank() == 0;
  Commands commands = AddCommands(app, world, argc > 0 ? argv[0] : "ada-train");
  bool version = false;
  app.add_flag("--version", version, "version, commit, compiler, backends and libraries");
  AddColor(app);
  commands.push_back(AddHelp(app));
  for (const Command& command : commands) command.app->group(GroupOf(command.app->get_name()));
  const Command& train = commands.front();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    // CLI11 also throws for --help, with exit code 0.
    if (e.get_exit_code() != 0) throw ConfigError(UsageProblem(app, *train.app, e));
    if (!is_first) return 0;
    if (app.get_subcommands().empty()) return PrintHelp(app);
    std::cout << app.help();
    return 0;
  }
  RefuseEmptyValues(app);
  for (const CLI::App* given : app.get_subcommands()) RefuseEmptyValues(*given);
  if (version) return is_first ? PrintVersions(world) : 0;
  // At most one command was given (require_subcommand above); where there is none, train is meant.
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    if (&command != &train) {
      if (!is_first) return 0;
      RefuseOptionsBefore(app, *command.app);
    }
    return command.run();
  }
  return train.run();
}

}  // namespace ada::cli
