// configs and fetch: the files that come with the program.
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "cli/shipped.h"
#include "error.h"
#include "io/data_files.h"
#include "io/file.h"
#include "io/text.h"
#include "run/about/about.h"
#include "study/text_table.h"

namespace ada::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMostBytes = 1 << 20;

// The first sentence of the comment at the top of a configuration.
// The comments at the top of configurations begin with what they are for.
std::string FirstSentence(const std::string& text) {
  std::string comment;
  for (std::size_t at = 0; at < text.size() && text[at] == '#';) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at + 1, end - at - 1);
    comment += comment.empty() && line.starts_with(' ') ? line.substr(1) : line;
    at = end + 1;
  }
  comment = comment.substr(0, comment.find(". "));
  if (comment.ends_with('.')) comment.pop_back();
  return comment;
}

// Every shipped configuration is loaded, so one that does not load shows here.
void PrintConfigs(std::ostream& out) {
  const fs::path root = ShippedConfigs();
  if (root.empty())
    throw ConfigError(
        "configs: the shipped configurations are not where the program expects them, in "
        "../share/ada-train/configs or ../configs from its own folder");
  for (const std::string& name : ShippedNames()) {
    const std::string path = root / name;
    out << name << '\n';
    study::PrintWrapped("    " + FirstSentence(ReadFile<ConfigError>(path, kMostBytes)), 4, out);
    study::PrintWrapped("    data: " + run::DataSource(config::Load(path, {}).config.data), 10,
                        out);
  }
}

// Copies a shipped configuration into the working directory, where nothing of that name may be.
// The name of the copy is the last part of the shipped name, without its folder.
void CopyConfig(const std::string& name, std::ostream& out) {
  const std::string path = ShippedPath(name);
  if (path.empty()) {
    throw ConfigError("--copy " + name + ": no shipped configuration of that name" +
                      DidYouMean(NearestName(name, ShippedNames())));
  }
  const std::string target = fs::path(path).filename().string();
  // Nothing of the user's is overwritten; a link that leads nowhere counts too.
  if (IsThere(target))
    throw OutputError(target + ": is there already; delete or rename it first, then copy");
  WriteFileAtomically(target, ReadFile<ConfigError>(path, kMostBytes));
  out << target << '\n';
}

// Without --copy the list is printed, with what each is for and which data it needs.
Command AddConfigs(CLI::App& app) {
  auto copy = std::make_shared<std::string>();
  CLI::App* configs = Add(app, "configs", "list the configurations that come with the program",
                          "  ada-train configs\n"
                          "  ada-train configs --copy resnet20_cifar.yaml");
  configs
      ->add_option("--copy", *copy,
                   "write this one into the working directory, to be changed;\n"
                   "its name goes to stdout")
      ->type_name("NAME");
  return {configs, [copy] {
            if (copy->empty()) {
              PrintConfigs(std::cout);
            } else {
              CopyConfig(*copy, std::cout);
            }
            return 0;
          }};
}

// Becomes the data script; returns only where that cannot be started.
// Terminal, signals and exit code are then the script's.
int Fetch(const CLI::App& fetch) {
  const std::string script = FetchScript();
  if (script.empty())
    throw ConfigError(
        "fetch: the data script is not where the program expects it, in "
        "../share/ada-train/scripts or ../data/scripts from its own folder");
  BecomeScript("fetch", "python3", script, fetch.remaining());
}

Command AddFetch(CLI::App& app) {
  CLI::App* fetch = Add(app, "fetch", "fetch and check a public data set",
                        "  ada-train fetch cifar10\n"
                        "  ada-train fetch fashion_mnist --from /usr/share/datasets/fashion-mnist\n"
                        "  ada-train fetch --help");
  // All that follows the word goes to the script as it is, --help too.
  fetch->prefix_command();
  fetch->set_help_flag();
  return {fetch, [fetch] { return Fetch(*fetch); }};
}

}  // namespace

Commands AddShippedCommands(CLI::App& app) { return {AddConfigs(app), AddFetch(app)}; }

}  // namespace ada::cli
