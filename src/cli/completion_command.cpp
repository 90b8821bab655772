// completion: what a shell needs to complete commands, options and keys of the configuration. All
// of it comes from the declarations of commands and keys, so that nothing is listed twice.
#include <algorithm>
#include <iostream>
#include <memory>
#include <sstream>

#include "cli/command_line.h"
#include "config/schema/schema.h"
#include "error.h"
#include "number/blocks/block_format.h"
#include "number/tables/table_format.h"

namespace ada::cli {
namespace {

// An option or a command with its description, as a shell shows them.
struct Word {
  std::string name, what;  // what: one line, "" where there is none
};

// The first line of a description, without what the quotes of shells would trip over.
// A colon divides name and description in zsh, so it becomes a comma.
std::string OneLine(const std::string& text) {
  std::string line;
  for (const char c : text.substr(0, text.find('\n')))
    if (c != '\'' && c != '\\' && c != '[' && c != ']') line += c == ':' ? ',' : c;
  return line;
}

constexpr char kWordLetters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";

// All commands, whether they were given or not: CLI11 otherwise lists those of the command line
// only.
std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// Long names only: short ones are as quick to type as to complete.
std::vector<Word> OptionsOf(const CLI::App& command) {
  std::vector<Word> options;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames())
      options.push_back({"--" + name, OneLine(option->get_description())});
  return options;
}

// Keys within lists cannot be set one by one, so they are not offered.
std::vector<std::string> Keys() {
  std::vector<std::string> keys;
  for (const config::KeyInfo& key : config::AllKeys())
    if (key.path.find("[]") == std::string::npos) keys.push_back(key.path + "=");
  return keys;
}

std::string Joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::string Names(const std::vector<Word>& words) {
  std::vector<std::string> names;
  for (const Word& word : words) names.push_back(word.name);
  return Joined(names);
}

// Words that a value may be: of an option "--policy", or of a key "scaling.policy".
struct Values {
  std::string name;
  std::vector<std::string> words;
};

// Keys whose values are words or booleans, as their ranges have them.
std::vector<Values> KeyValues() {
  std::vector<Values> all;
  for (const config::KeyInfo& key : config::AllKeys()) {
    const bool words = key.type == "word" || key.type == "boolean" || key.type == "word or map";
    if (!words || key.path.find("[]") != std::string::npos) continue;
    Values values{key.path, {}};
    std::string listed = key.range;  // of two choices: one list, `;`, the other
    std::replace(listed.begin(), listed.end(), ';', ',');
    std::istringstream range(listed);
    for (std::string word; std::getline(range, word, ',');) {
      word.erase(0, word.find_first_not_of(' '));
      const bool plain = !word.empty() && word.find_first_not_of(kWordLetters) == std::string::npos;
      if (plain) values.words.push_back(word);
      if (word.find("P3109") == std::string::npos) continue;
      for (const std::string& name : TableFormatNames())
        if (name.starts_with("binary")) values.words.push_back(name);
    }
    if (!values.words.empty()) all.push_back(std::move(values));
  }
  return all;
}

// Values of options that are short for a key, and of those that name formats, of blocks too.
std::vector<Values> OptionValues() {
  std::vector<Values> all = {{"--color", {"auto", "always", "never"}}};
  for (const Values& key : KeyValues()) {
    if (key.name == "scaling.policy") all.push_back({"--policy", key.words});
    if (key.name == "scaling.preset") all.push_back({"--preset", key.words});
    if (key.name == "precision.recipe") all.push_back({"--recipe", key.words});
    if (key.name != "precision.format") continue;
    all.push_back({"--format", key.words});
    all.push_back({"--formats", key.words});
    for (const NamedBlockFormat& format : NamedBlockFormats())
      all.back().words.emplace_back(format.name);
  }
  return all;
}

// A `case` of bash or zsh that sets `values` to those of what `word` names; as_list: an array.
std::string ValueCases(const std::string& word, const std::vector<Values>& all, bool as_list,
                       const std::string& otherwise) {
  const auto [begin, end] = as_list ? std::pair("( ", " )") : std::pair("'", "'");
  std::string text = "    case " + word + " in\n";
  for (const Values& values : all)
    text += "      " + values.name + ") values=" + begin + Joined(values.words) + end + " ;;\n";
  return text + "      *) " + otherwise + " ;;\n    esac\n";
}

// The script finds the command as the first word without a dash, then offers its options, the
// values of an option or key that has words, keys after --set, and shipped configurations where a
// file of that kind is expected.
void PrintBash(const CLI::App& app, std::ostream& out) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  out << "# bash completion of ada-train; made by `ada-train completion bash`\n"
         "_ada_train() {\n"
         "  local word=${COMP_WORDS[COMP_CWORD]} command= options= last= i\n"
         "  COMPREPLY=()\n"
         "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
         "    case ${COMP_WORDS[i]} in\n"
         "      -*) last=${COMP_WORDS[i]} ;;\n"
         "      *) [ -n \"$command\" ] || [ -n \"$last\" ] || command=${COMP_WORDS[i]} ;;\n"
         "    esac\n"
         "  done\n"
         "  case $command in\n";
  for (const CLI::App* command : CommandsOf(app))
    out << "    " << command->get_name() << ") options='" << Names(OptionsOf(*command)) << "' ;;\n";
  out << "    *) options='" << Names(OptionsOf(app)) << "' ;;\n"
      << "  esac\n"
         "  if [[ $word == -* ]]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\")\n"
         "    return\n"
         "  fi\n"
         "  # The value of KEY=VALUE is a word of its own where = ends words, else the end of "
         "one.\n"
         "  local key=${COMP_WORDS[COMP_CWORD-2]-} before=${COMP_WORDS[COMP_CWORD-1]-} part=\n"
         "  if [ \"$word\" = = ]; then key=$before before== word=; fi\n"
         "  if [[ $word == *=* ]]; then key=${word%%=*} before== part=$key= word=${word#*=}; fi\n"
         "  local values=\n"
         "  if [ \"$last\" = --set ] && [ \"$before\" = = ]; then\n"
      << ValueCases("$key", KeyValues(), false, "return")
      << "  elif [ \"$before\" = \"$last\" ]; then\n"
      << ValueCases("$last", OptionValues(), false, ":")
      << "  fi\n"
         "  if [ -n \"$values\" ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -P \"$part\" -W \"$values\" -- \"$word\")\n"
         "  elif [ \"$last\" = --set ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '"
      << Joined(Keys())
      << "' -- \"$word\")\n"
         "    compopt -o nospace 2>/dev/null\n"
         "  elif [ \"$last\" = --copy ] || [[ $last$command =~ "
         "^(--config|-c|train|rates|choose|ablate|assign)$ ]]; "
         "then\n"
         "    mapfile -t COMPREPLY < <(compgen -f -W '"
      << Joined(ShippedNames())
      << "' -- \"$word\")\n"
         "  elif [ -z \"$command\" ] && [ -z \"$last\" ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '"
      << Joined(names)
      << "' -- \"$word\")\n"
         "  elif [ \"$command\" = help ]; then\n"
         "    mapfile -t COMPREPLY < <(compgen -W '"
      << Joined(names)
      << "' -- \"$word\")\n"
         "  fi\n"
         "}\n"
         "complete -o default -F _ada_train ada-train\n";
}

// The same with descriptions, which zsh shows next to the words.
void PrintZsh(const CLI::App& app, std::ostream& out) {
  const auto list = [&out](const char* name, const std::vector<Word>& words) {
    out << "  " << name << "=(";
    for (const Word& word : words)
      out << " '" << word.name << (word.what.empty() ? "" : ":" + word.what) << "'";
    out << " )\n";
  };
  std::vector<Word> commands;
  for (const CLI::App* command : CommandsOf(app))
    commands.push_back({command->get_name(), OneLine(command->get_description())});
  out << "#compdef ada-train\n"
         "# zsh completion of ada-train; made by `ada-train completion zsh`\n"
         "_ada_train() {\n"
         "  local -a commands options keys\n";
  list("commands", commands);
  out << "  keys=( " << Joined(Keys()) << " )\n"
      << "  case ${words[2]} in\n";
  for (const CLI::App* command : CommandsOf(app)) {
    out << "    " << command->get_name() << ")";
    list("options", OptionsOf(*command));
    out << "      ;;\n";
  }
  out << "    *)";
  list("options", OptionsOf(app));
  out << "      ;;\n"
         "  esac\n"
         "  local -a values\n"
      << ValueCases("${words[CURRENT-1]}", OptionValues(), true, ":")
      << "  if [[ ${words[CURRENT]} == *=* ]]; then\n"
      << ValueCases("${words[CURRENT]%%=*}", KeyValues(), true, ":")
      << "    compset -P '*='\n"
         "  fi\n"
         "  if (( ${#values} )); then compadd -a values\n"
         "  elif [[ ${words[CURRENT]} == -* ]]; then _describe option options\n"
         "  elif [[ ${words[CURRENT-1]} == --set ]]; then compadd -S '' -a keys\n"
         "  elif (( CURRENT == 2 )) || [[ ${words[2]} == help ]]; then\n"
         "    _describe command commands\n"
         "  else _files\n"
         "  fi\n"
         "}\n"
         "_ada_train \"$@\"\n";
}

// Keys, and keys with each of their words: fish completes whole arguments.
std::vector<std::string> Pairs() {
  std::vector<std::string> pairs = Keys();
  for (const Values& values : KeyValues())
    for (const std::string& word : values.words) pairs.push_back(values.name + "=" + word);
  return pairs;
}

// Fish wants a line for each option, with a condition when it applies.
void PrintFish(const CLI::App& app, std::ostream& out) {
  out << "# fish completion of ada-train; made by `ada-train completion fish`\n";
  const auto options = [&out](const std::string& when, const CLI::App& command) {
    for (const Word& option : OptionsOf(command))
      out << "complete -c ada-train -n '" << when << "' -l " << option.name.substr(2) << " -d '"
          << option.what << "'\n";
  };
  options("__fish_use_subcommand", app);
  for (const CLI::App* command : CommandsOf(app)) {
    const std::string& name = command->get_name();
    out << "complete -c ada-train -n __fish_use_subcommand -a " << name << " -d '"
        << OneLine(command->get_description()) << "'\n";
    options("__fish_seen_subcommand_from " + name, *command);
    for (const Values& values : OptionValues())
      if (command->get_option_no_throw(values.name))
        out << "complete -c ada-train -n '__fish_seen_subcommand_from " << name << "' -l "
            << values.name.substr(2) << " -x -a '" << Joined(values.words) << "'\n";
    if (command->get_option_no_throw("--set"))
      out << "complete -c ada-train -n '__fish_seen_subcommand_from " << name
          << "; and __fish_prev_arg_in --set' -a '" << Joined(Pairs()) << "'\n";
  }
}

// The script goes to stdout, to be sourced or put where the shell looks for it.
int PrintCompletion(const CLI::App& app, const std::string& shell) {
  if (shell == "bash") {
    PrintBash(app, std::cout);
  } else if (shell == "zsh") {
    PrintZsh(app, std::cout);
  } else if (shell == "fish") {
    PrintFish(app, std::cout);
  } else {
    throw ConfigError("completion: " + (shell.empty() ? "SHELL is missing" : shell) +
                      ": expected bash, zsh or fish");
  }
  return 0;
}

}  // namespace

// The script is made when the command runs, so commands that are added after this one are in it.
Commands AddCompletionCommands(CLI::App& app) {
  auto shell = std::make_shared<std::string>();
  CLI::App* completion =
      Add(app, "completion", "a script that completes commands, options and keys in a shell",
          "  ada-train completion bash > ada-train.bash   # to be sourced\n"
          "  ada-train completion fish > ada-train.fish");
  AddValue(*completion, "SHELL", *shell, "", "bash, zsh or fish");
  return {{completion, [shell, &app] { return PrintCompletion(app, *shell); }}};
}

}  // namespace ada::cli
