// Lays out --help in lines that fit every terminal: descriptions are broken anew, and long examples
// go on after a backslash.
#include <algorithm>
#include <sstream>
#include <vector>

#include "cli/output.h"
#include "io/shown_text.h"

namespace ada::cli {
namespace {

std::string OnOneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The words of a command line; quoted text stays together. It does only what the examples need:
// both kinds of quotes, no escapes and no variables.
std::vector<std::string> ShellWords(const std::string& line) {
  std::vector<std::string> words;
  char quote = '\0';
  bool within = false;
  for (const char c : line) {
    if (c == ' ' && quote == '\0') {
      within = false;
      continue;
    }
    if (!within) words.emplace_back();
    within = true;
    words.back() += c;
    if (c == quote)
      quote = '\0';
    else if (quote == '\0' && (c == '"' || c == '\''))
      quote = c;
  }
  return words;
}

// A command line over several lines where one is too short, broken in front of options.
// Options start the lines that follow, since an option and its value belong together.
std::string Example(const std::string& line) {
  if (TextWidth(line) <= kTerminalWidth) return line;
  constexpr char kContinued[] = " \\\n      ";
  constexpr std::size_t kIndent = 2, kDeeper = 6, kBackslash = 2;
  std::vector<std::string> parts;
  for (const std::string& word : ShellWords(line)) {
    if (parts.empty() || word.starts_with('-') || word == "|" || word == ">")
      parts.push_back(word);
    else
      parts.back() += " " + word;
  }
  std::string text(kIndent, ' ');
  std::size_t used = kIndent;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::size_t width = TextWidth(parts[i]);
    const bool fits = used + 1 + width + kBackslash <= kTerminalWidth;
    if (i > 0) text += fits ? " " : kContinued;
    used = i == 0 ? kIndent + width : fits ? used + 1 + width : kDeeper + width;
    text += parts[i];
  }
  return text;
}

}  // namespace

std::string HelpFormat::make_description(const CLI::App* app) const {
  return Wrapped(OnOneLine(app->get_description()), 0) + "\n";
}

std::string HelpFormat::make_usage(const CLI::App* app, std::string name) const {
  // The name is argv[0], which may be a path.
  name.erase(0, name.rfind('/') + 1);
  return CLI::Formatter::make_usage(app, name);
}

std::string HelpFormat::make_footer(const CLI::App* app) const {
  std::istringstream lines(app->get_footer());
  // The blank line before it is CLI11's: some versions (2.1) print it in front of the footer,
  // others (2.4) as part of it.
  const bool has_blank_line = CLI::Formatter::make_footer(app).starts_with('\n');
  std::string text = has_blank_line ? "\n" : "";
  for (std::string line; std::getline(lines, line);)
    // Examples are command lines and must stay copyable; other lines are prose.
    text += (line.starts_with("  ada-train ") ? Example(line) : Wrapped(line, 0)) + "\n";
  return text;
}

std::string HelpFormat::make_option(const CLI::Option* option, bool is_positional) const {
  return Row(make_option_name(option, is_positional) + make_option_opts(option),
             make_option_desc(option));
}

std::string HelpFormat::make_subcommand(const CLI::App* command) const {
  return Row(command->get_display_name(true), command->get_description());
}

// "  NAME      WHAT", what goes on below itself.
// A name that reaches the column has its description on the next line.
std::string HelpFormat::Row(const std::string& name, const std::string& what) const {
  const std::size_t column = get_column_width();
  std::string text = "  " + name;
  if (what.empty()) return text + "\n";
  if (text.size() >= column)
    text += "\n" + std::string(column, ' ');
  else
    text.resize(column, ' ');
  return text + Wrapped(OnOneLine(what), column, kTerminalWidth, column) + "\n";
}

}  // namespace ada::cli
