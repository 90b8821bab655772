// For whom a command writes: people at a terminal, or programs.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

#include "study/commands.h"

namespace ada::cli {

// `--csv` and `--table`.
struct ViewFlags {
  bool csv = false, table = false;
  // What they ask for; without them a table on a terminal, CSV elsewhere. Throws ConfigError for
  // both.
  study::View View() const;
};
void AddView(CLI::App& app, ViewFlags& flags);

// Prints what this version knows, such as `policies`: on a terminal in lines of at most 80 columns,
// elsewhere a line for each.
void PrintList(const std::string& what);

}  // namespace ada::cli
