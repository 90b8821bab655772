// For whom a command writes: a table or wrapped lines on a terminal, CSV or one line an item
// elsewhere, unless an option says otherwise. A stream buffer in front of a stream makes each whole
// line visible before it passes it on.
#include "cli/output.h"

#include <unistd.h>

#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "error.h"
#include "io/json_output.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "run/about/about.h"
#include "study/text_table.h"

namespace ada::cli {
namespace {

constexpr std::size_t kIndent = 4;

void PrintIndented(std::string_view text, std::ostream& out) {
  study::PrintWrapped(std::string(kIndent, ' ') + std::string(text), kIndent + 2, out);
}

// "NAME: MEANING; SOURCE; CONSTANTS", a block for each; a meaning may have a `;` of its own.
// Cut from the end, where source and constants hold no semicolon.
void PrintPolicy(std::string_view line, std::ostream& out) {
  const std::size_t name = line.find(": "), constants = line.rfind("; "),
                    source = line.rfind("; ", constants - 1);
  out << line.substr(0, name) << '\n';
  PrintIndented(line.substr(name + 2, source - name - 2), out);
  PrintIndented("as in: " + std::string(line.substr(source + 2, constants - source - 2)), out);
  PrintIndented("defaults: " + std::string(line.substr(constants + 2)), out);
}

// Counts the list's lines by their beginnings, and explains how to choose and try a policy.
void PrintPolicies(const std::vector<std::string>& lines, std::ostream& out) {
  std::int64_t presets = 0, methods = 0;
  for (const std::string& line : lines) {
    PrintPolicy(line, out);
    presets += line.starts_with("dynamic, preset ");
    methods += line.starts_with("adaptive, method ");
  }
  const auto others = static_cast<std::int64_t>(lines.size()) - presets - methods;
  out << Counted(presets, "preset") << " of dynamic, " << Counted(methods, "method")
      << " of adaptive and " << others << " more\n"
      << "for one: --set scaling.policy=dynamic scaling.preset=NAME\n"
      << "to see one move: ada-train replay --preset NAME\n";
}

// A stream buffer in front of another one. It passes whole lines on, so that no character is looked
// at in two pieces, and the rest when it is flushed.
class Filter : public std::streambuf {
 public:
  explicit Filter(std::streambuf* to) : to_(to) {}

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    line_ += traits_type::to_char_type(c);
    return line_.back() != '\n' || Pass() ? c : traits_type::eof();
  }
  // Text without a line end is only kept; that is success.
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    line_.append(text, static_cast<std::size_t>(size));
    return line_.find('\n') == std::string::npos || Pass() ? size : 0;
  }
  int sync() override { return Pass() && to_->pubsync() == 0 ? 0 : -1; }

 private:
  bool Pass() {
    const std::string shown = VisibleLines(line_);
    line_.clear();
    const auto size = static_cast<std::streamsize>(shown.size());
    return to_->sputn(shown.data(), size) == size;
  }

  std::streambuf* const to_;
  std::string line_;
};

}  // namespace

// Programs get one line an item, unwrapped, whatever its length.
void PrintList(const std::string& what, bool json) {
  if (json) return PrintJson(run::ListJson(what), std::cout);
  const std::vector<std::string> lines = run::List(what);
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  if (terminal && what == "policies") return PrintPolicies(lines, std::cout);
  for (const std::string& line : lines) {
    if (terminal) {
      study::PrintWrapped(line, kIndent, std::cout);
    } else {
      std::cout << line << '\n';
    }
  }
}

// Only standard output counts: a table may be wanted with stderr in a file.
study::View ViewFlags::View() const {
  if (csv && table) throw ConfigError("--csv and --table; expected one of them");
  if (json && (csv || table))
    throw ConfigError(std::string("--json and ") + (csv ? "--csv" : "--table") +
                      "; expected one of them");
  if (json) return study::View::kJson;
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  return table || (terminal && !csv) ? study::View::kTable : study::View::kCsv;
}

void AddView(CLI::App& app, ViewFlags& flags) {
  app.add_flag("--csv", flags.csv, "CSV, as elsewhere, also on a terminal");
  app.add_flag("--table", flags.table, "a table of 80 columns, as on a terminal, also elsewhere");
}

void AddJson(CLI::App& app, bool& json) {
  app.add_flag("--json", json, "JSON, as configs/JSON.md says");
}

TerminalText::TerminalText(std::ostream& stream, int descriptor)
    : stream_(stream), before_(stream.rdbuf()) {
  if (isatty(descriptor) == 1) Begin();
}

TerminalText::TerminalText(std::ostream& stream) : stream_(stream), before_(stream.rdbuf()) {
  Begin();
}

void TerminalText::Begin() {
  filter_ = std::make_unique<Filter>(before_);
  stream_.rdbuf(filter_.get());
}

TerminalText::~TerminalText() {
  if (filter_ == nullptr) return;
  stream_.flush();
  const std::ios::iostate state = stream_.rdstate();
  // Exchanging the buffer clears the stream's state, which main.cpp still asks for.
  stream_.rdbuf(before_);  // forgets what went wrong
  stream_.clear(state);
}

}  // namespace ada::cli
