// How commands write: for people or for programs, to which files, and how help is laid out.
#pragma once
#include <CLI/CLI.hpp>
#include <memory>
#include <ostream>
#include <streambuf>
#include <string>
#include <vector>

#include "config/config.h"
#include "study/commands.h"

namespace ada::cli {

// `--csv` and `--table`, and of some commands `--json`: for whom a command writes, programs or
// people at a terminal.
struct ViewFlags {
  bool csv = false, table = false, json = false;
  // What they ask for; without them a table on a terminal, CSV elsewhere. Throws ConfigError for
  // two of them.
  study::View View() const;
};
void AddView(CLI::App& app, ViewFlags& flags);
// `--json`, of commands that print one of the objects of configs/JSON.md.
void AddJson(CLI::App& app, bool& json);

// Prints a list of what this version supports, such as `policies`: on a terminal in lines of at
// most 80 columns, elsewhere one line for each entry. json: as JSON.
void PrintList(const std::string& what, bool json = false);

// What a command reads and writes, looked at before it writes. `what` is the option or operand, for
// messages; an empty path is one that is not given. Devices and FIFOs may be read and written
// together.
// A command names all its paths, then calls Check once, before any work that takes long. Folders of
// predictions have a rule of their own beside it (run/evaluate/protect_data.h).
class OutputPaths {
 public:
  // A folder stands for all that lies in it.
  void Read(const std::string& what, const std::string& path);
  void Write(const std::string& what, const std::string& path);
  // Either file of a checkpoint stands for both.
  void ReadCheckpoint(const std::string& what, const std::string& path);
  // All that a configuration names: its own files, its data, the weights that it starts from.
  void ReadConfig(const config::Config& config);
  // Throws ConfigError if two outputs are the same file, if an output is also an input or a file
  // in the folder of one, or if it is a file that a run keeps for itself.
  void Check() const;

 private:
  struct Named {
    std::string what, path;
  };
  std::vector<Named> read_, written_;
};

// Throws ConfigError where an option names a file that a run keeps for itself.
void CheckOutput(const std::string& option, const std::string& path);

// While it lives, text for `stream`, which must outlive it, is made visible. Output for programs,
// such as CSV, names things exactly as files do: byte for byte in a pipe or a file, but made
// visible (io/shown_text.h) on a terminal. Text for people is visible everywhere.
class TerminalText {
 public:
  // If `descriptor`, to which the stream goes, is a terminal. Dispatch makes one for each of stdout
  // and stderr.
  TerminalText(std::ostream& stream, int descriptor);
  // Wherever it goes: for commands whose output holds names of files and classes among words.
  explicit TerminalText(std::ostream& stream);
  ~TerminalText();
  TerminalText(const TerminalText&) = delete;
  TerminalText& operator=(const TerminalText&) = delete;

 private:
  void Begin();

  std::ostream& stream_;
  std::streambuf* const before_;
  std::unique_ptr<std::streambuf> filter_;  // null where there is no terminal
};

// How `--help` is laid out: like CLI11's own, in lines that fit every terminal. Line ends within a
// description are blanks: it is broken anew, to the right of the names. Examples that are too long
// go on after a backslash, as a shell takes them. The program stands in the usage without its
// folder. Dispatch makes one and gives it to the program before commands are added, which share it.
std::shared_ptr<CLI::FormatterBase> MakeHelpFormat();

}  // namespace ada::cli
