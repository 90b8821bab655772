// How `--help` is laid out: like CLI11's own, in lines that fit every terminal.
#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace ada::cli {

// Line ends within a description are blanks: it is broken anew, to the right of the names. Examples
// that are too long go on after a backslash, as a shell takes them. The program stands in the usage
// without its folder.
// Dispatch makes one and gives it to the program before commands are added, which share it.
class HelpFormat : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override;
  std::string make_usage(const CLI::App* app, std::string name) const override;
  std::string make_footer(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;
  std::string make_subcommand(const CLI::App* command) const override;

 private:
  std::string Row(const std::string& name, const std::string& what) const;
};

}  // namespace ada::cli
