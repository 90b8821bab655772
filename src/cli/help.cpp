// Lays out --help in lines that fit every terminal: descriptions are broken anew, and long examples
// go on after a backslash. Then messages for a command line that cannot be parsed: CLI11 only
// reports that an argument was not expected; these add what was probably meant: an option, a
// command, or a key of the configuration.
#include <algorithm>
#include <memory>
#include <sstream>
#include <vector>

#include "cli/command_line.h"
#include "cli/output.h"
#include "config/schema/schema.h"
#include "io/shown_text.h"
#include "io/text.h"
#include "study/text_table.h"

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

class HelpFormat : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return Wrapped(OnOneLine(app->get_description()), 0) + "\n";
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    // The name is argv[0], which may be a path.
    name.erase(0, name.rfind('/') + 1);
    return CLI::Formatter::make_usage(app, name);
  }
  std::string make_footer(const CLI::App* app) const override {
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
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return Row(make_option_name(option, is_positional) + make_option_opts(option),
               make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return Row(command->get_display_name(true), command->get_description());
  }

 private:
  // "  NAME      WHAT", what goes on below itself.
  // A name that reaches the column has its description on the next line.
  std::string Row(const std::string& name, const std::string& what) const {
    const std::size_t column = get_column_width();
    std::string text = "  " + name;
    if (what.empty()) return text + "\n";
    if (text.size() >= column)
      text += "\n" + std::string(column, ' ');
    else
      text.resize(column, ' ');
    return text + Wrapped(OnOneLine(what), column, kTerminalWidth, column) + "\n";
  }
};

// A single dash is an operand, standard input.
bool IsOption(const std::string& argument) {
  return argument.size() > 1 && argument.front() == '-' && argument != "--";
}

// `text`, and where to read on.
std::string WithAdvice(const std::string& text, const std::string& advice) {
  return text + (text.ends_with('?') ? " " : "; ") + advice;
}

std::string HelpOf(const CLI::App& command) {
  return "`ada-train help " + command.get_name() + "` shows what it takes";
}

// The keys of the YAML that are called like an option: train.max_steps of "max-steps".
// All of them are named, since a name such as `every` may be a key of several sections.
std::string KeysCalled(std::string option) {
  std::replace(option.begin(), option.end(), '-', '_');
  std::string found;
  for (const config::KeyInfo& key : config::AllKeys()) {
    const bool in_list = key.path.find("[]") != std::string::npos;
    const std::string last = key.path.substr(key.path.rfind('.') + 1);
    if (!in_list && (last == option || key.path == option))
      found += (found.empty() ? "--set " : " or --set ") + key.path + "=VALUE";
  }
  return found;
}

// Message for an unknown option "--epoch", with the option or key that was probably meant. The
// commands that accept keys of the YAML are those with --config.
std::string UnknownOption(const std::string& argument, const CLI::App& command) {
  const std::string name = argument.substr(0, argument.find('='));
  std::vector<std::string> known;  // without the dashes, which would make all names alike
  for (const CLI::Option* option : command.get_options())
    for (const std::string& long_name : option->get_lnames()) known.push_back(long_name);
  const std::string bare = name.substr(std::min(name.find_first_not_of('-'), name.size()));
  const bool takes_keys = command.get_option_no_throw("--config") != nullptr;
  const std::string keys = takes_keys ? KeysCalled(bare) : "";
  const std::string text = Visible(name) + " is no option of " + command.get_name();
  // A key of exactly this name is a better guess than an option with a similar one.
  if (!keys.empty()) return text + "; did you mean " + keys + "?";
  const std::string nearest = NearestName(bare, known);
  if (!nearest.empty()) return text + "; did you mean --" + nearest + "?";
  return text + (takes_keys ? "; any key of the YAML is --set KEY=VALUE" : "");
}

// A file where a command was expected is probably a configuration to train with.
std::string UnknownCommand(const std::string& argument, const CLI::App& app) {
  const std::string nearest = NearestCommand(app, argument);
  const auto ends = [&](const char* ending) { return argument.ends_with(ending); };
  const bool file = ends(".yaml") || ends(".yml") || ends(".json");
  const std::string meant =
      file && nearest.empty()
          ? "; to train with that file: ada-train train " + Visible(ShellPath(argument))
          : nearest;
  return WithAdvice(Visible(argument) + " is no command" + meant,
                    "`ada-train help` lists the commands");
}

// Arguments that no command accepts, in their order. If there are unknown options, only these are
// reported, because operands after them may be their values.
std::string Unexpected(const std::vector<std::string>& left, const CLI::App& app,
                       const CLI::App* given, const CLI::App& train) {
  if (given == nullptr && !left.empty() && !IsOption(left.front()))
    return UnknownCommand(left.front(), app);
  const CLI::App& command = given == nullptr ? train : *given;
  std::string text;
  for (const std::string& argument : left)
    if (IsOption(argument)) text += (text.empty() ? "" : "\n") + UnknownOption(argument, command);
  if (text.empty())
    for (const std::string& argument : left)
      text += (text.empty() ? "not expected after " + command.get_name() + ": " : " ") +
              Visible(argument);
  return WithAdvice(text, HelpOf(command));
}

}  // namespace

std::shared_ptr<CLI::FormatterBase> MakeHelpFormat() {
  auto format = std::make_shared<HelpFormat>();
  format->label("SUBCOMMAND", "COMMAND");
  return format;
}

std::string NearestCommand(const CLI::App& app, const std::string& name) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return study::DidYouMean(name, names);
}

// Arguments that nothing expects have a message of their own; all else is CLI11's, with where to
// read on.
std::string UsageProblem(const CLI::App& app, const CLI::App& train, const CLI::ParseError& error) {
  const std::vector<CLI::App*> given = app.get_subcommands();
  const CLI::App* command = given.empty() ? nullptr : given.front();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr)
    return Unexpected(app.remaining(true), app, command, train);
  return WithAdvice(error.what(), HelpOf(command == nullptr ? train : *command));
}

}  // namespace ada::cli
