// configs and fetch: the files that come with the program, which finds them by its own place, so an
// installation can be moved as a whole.
#include "cli/shipped.h"

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "cli/command_line.h"
#include "error.h"
#include "io/data_files.h"
#include "io/file.h"
#include "io/text.h"
#include "run/about/about.h"
#include "study/text_table.h"

namespace ada::cli {

namespace {

namespace fs = std::filesystem;

// The first of the folders, seen from the program's own, that has `file`. "": none has.
// The link is read and not argv[0], which may be a name in PATH or a link of the user.
fs::path Beside(std::initializer_list<const char*> folders, const char* file) {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  for (const char* folder : folders) {
    const fs::path path = (program.parent_path() / folder).lexically_normal();
    if (fs::exists(path / file, error)) return path;
  }
  return {};
}

}  // namespace

// A file that every version has tells the folder from others of the same name.
std::string ShippedConfigs() {
  return Beside({"../share/ada-train/configs", "../configs"}, "fashion_quickstart.yaml").string();
}

std::string FetchScript() {
  const fs::path folder = Beside({"../share/ada-train/scripts", "../data/scripts"}, "fetch.py");
  return folder.empty() ? "" : (folder / "fetch.py").string();
}

std::string ToolScript(const std::string& file) {
  const fs::path folder = Beside({"../share/ada-train/tools", "../tools"}, file.c_str());
  return folder.empty() ? "" : (folder / file).string();
}

std::string Installation() {
  const fs::path configs = ShippedConfigs();
  if (configs.empty()) return "alone";
  // An installed tree is told from a source tree by the names of the folders around the
  // configurations.
  const fs::path share = configs.parent_path();
  if (share.filename() != "ada-train" || share.parent_path().filename() != "share")
    return "source tree";
  const fs::path prefix = share.parent_path().parent_path();
  if (prefix.filename() == "program" && prefix.parent_path().filename() == "ada_train")
    return "as a wheel";
  return prefix == "/usr" ? "as a package" : "below " + prefix.string();
}

std::vector<std::string> ShippedNames() {
  std::vector<std::string> names;
  const fs::path root = ShippedConfigs();
  if (root.empty()) return names;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root))
    if (entry.path().extension() == ".yaml")
      names.push_back(entry.path().lexically_relative(root).string());
  std::sort(names.begin(), names.end());
  return names;
}

// Looked up among the names and not by path, so `name` cannot lead out of the folder.
std::string ShippedPath(const std::string& name) {
  const fs::path root = ShippedConfigs();
  if (root.empty() || name.empty()) return "";
  const std::string prefix = "configs/";
  const std::string inner = name.starts_with(prefix) ? name.substr(prefix.size()) : name;
  for (const std::string& known : ShippedNames())
    if (known == inner || known == inner + ".yaml") return (root / known).string();
  return "";
}

namespace {

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
