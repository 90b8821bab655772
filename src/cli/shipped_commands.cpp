// configs, fetch, report, sweep, from-torch, to-torch, to-onnx: the files that come with the
// program, which finds them by its own place, so an installation can be moved as a whole. A script
// takes the place of this program: terminal, signals and exit code are its own.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
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

}  // namespace

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

// The first sentence of the comment at the top of a configuration, which says what it is for.
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
                      study::DidYouMean(name, ShippedNames()));
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
  AddValue(*configs, "--copy", *copy, "NAME",
           "write this one into the working directory, to be changed;\n"
           "its name goes to stdout");
  return {configs, [copy] {
            if (copy->empty()) {
              PrintConfigs(std::cout);
            } else {
              CopyConfig(*copy, std::cout);
            }
            return 0;
          }};
}

// Becomes the script, with these words after its name. Throws DeviceError, which says what to
// install, where the interpreter cannot be started; it does not return.
[[noreturn]] void BecomeScript(const std::string& command, const std::string& interpreter,
                               const std::string& script, const std::vector<std::string>& words) {
  std::vector<std::string> all = {interpreter, script};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> arguments;
  for (std::string& word : all) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::cout.flush();
  execvp(arguments[0], arguments.data());
  const std::string needs = interpreter == "bash" ? "bash" : "Python 3";
  throw DeviceError(command + ": " + interpreter + " cannot be started: " + std::strerror(errno) +
                    "; it needs " + needs + ": apt-get install " +
                    (interpreter == "bash" ? "bash" : "python3") + ", or your system's package");
}

// Becomes the data script; returns only where that cannot be started.
int Fetch(const CLI::App& fetch) {
  const std::string script = FetchScript();
  if (script.empty())
    throw ConfigError(
        "fetch: the data script is not where the program expects it, in "
        "../share/ada-train/scripts or ../data/scripts from its own folder");
  BecomeScript("fetch", "python3", script, fetch.remaining());
}

// All that follows the word goes to the script as it is, --help too.
void HandOn(CLI::App& command) {
  command.prefix_command();
  command.set_help_flag();
}

Command AddFetch(CLI::App& app) {
  CLI::App* fetch = Add(app, "fetch", "fetch and check a public data set",
                        "  ada-train fetch cifar10\n"
                        "  ada-train fetch fashion_mnist --from /usr/share/datasets/fashion-mnist\n"
                        "  ada-train fetch --help");
  HandOn(*fetch);
  return {fetch, [fetch] { return Fetch(*fetch); }};
}

// A tool: its command, its file below the tools, and what it needs beside Python.
struct Script {
  const char *command, *file, *what, *examples;
};
constexpr Script kScripts[] = {
    {"report", "report.py", "one page of pictures of runs (Python with pandas, matplotlib, plotly)",
     "  ada-train report runs/a runs/b -o report.html\n"
     "  ada-train report runs/a --serve      # a run that goes on"},
    {"sweep", "sweep.sh", "many runs from lists of values, and their table (bash, Python)",
     "  ada-train sweep --config mine.yaml --out sweeps/b --vary precision.format=fp16,bf16\n"
     "  ada-train sweep --table sweeps/b"},
    {"from-torch", "from_torch.py", "a torch.nn.Module as a network of a configuration (PyTorch)",
     "  ada-train from-torch torchvision.models:resnet18 --input 3x224x224 --output net\n"
     "  ada-train from-torch mygpt:make --tokens 128 --output net"},
    {"to-torch", "to_torch.py", "trained weights back, for load_state_dict (Python with NumPy)",
     "  ada-train to-torch runs/mine --net net --output trained.safetensors\n"
     "  ada-train to-torch --help"},
    {"to-onnx", "to_onnx.py", "a trained network as ONNX (Python with onnx)",
     "  ada-train to-onnx runs/mine --output mine.onnx\n"
     "  ada-train to-onnx --help"},
};

// The interpreter of a wheel's own environment, else the one on the PATH.
std::string Python() {
  const char* named = std::getenv("ADA_PYTHON");
  return named != nullptr && *named != '\0' ? named : "python3";
}

int RunScriptCommand(const Script& script, const CLI::App& command) {
  const std::string path = ToolScript(script.file);
  if (path.empty())
    throw ConfigError(std::string(script.command) + ": the tool " + script.file +
                      " is not where the program expects it, in ../share/ada-train/tools or "
                      "../tools from its own folder; install the package or the wheel whole");
  std::error_code error;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) setenv("ADA_TRAIN", program.c_str(), /*overwrite=*/0);
  const bool is_shell = path.ends_with(".sh");
  BecomeScript(script.command, is_shell ? "bash" : Python(), path, command.remaining());
}

}  // namespace

Commands AddShippedCommands(CLI::App& app) {
  Commands commands = {AddConfigs(app), AddFetch(app)};
  for (const Script& script : kScripts) {
    CLI::App* command = Add(app, script.command, script.what, script.examples);
    HandOn(*command);
    commands.push_back(
        {command, [&script, command] { return RunScriptCommand(script, *command); }});
  }
  return commands;
}

}  // namespace ada::cli
