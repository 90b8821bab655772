// models, policies, formats, datasets, schema: what this version knows.
#include <iostream>

#include "cli/commands.h"
#include "cli/view.h"
#include "config/schema/schema.h"

namespace ada::cli {
namespace {

Command AddList(CLI::App& app, const std::string& what) {
  const std::string examples = "  ada-train " + what + "\n  ada-train " + what + " | sort";
  return {Add(app, what.c_str(), ("list the " + what + " of this version").c_str(), examples),
          [what] {
            PrintList(what);
            return 0;
          }};
}

Command AddSchema(CLI::App& app) {
  return {Add(app, "schema", "a JSON Schema of the YAML, for editors",
              "  ada-train schema > ada-train.schema.json\n"
              "  ada-train schema | less"),
          [] {
            std::cout << config::JsonSchema();
            return 0;
          }};
}

}  // namespace

Commands AddListCommands(CLI::App& app) {
  Commands commands;
  for (const char* what : {"models", "policies", "formats", "datasets"})
    commands.push_back(AddList(app, what));
  commands.push_back(AddSchema(app));
  return commands;
}

}  // namespace ada::cli
