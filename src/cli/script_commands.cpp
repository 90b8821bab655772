// report, sweep, from-torch, to-torch, to-onnx: the Python tools that come with the program, as its
// commands. A script takes the place of this program: terminal, signals and exit code are its own.

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "cli/command_line.h"
#include "cli/shipped.h"
#include "error.h"

namespace ada::cli {
namespace {

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

void BecomeScript(const std::string& command, const std::string& interpreter,
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

Commands AddScriptCommands(CLI::App& app) {
  Commands commands;
  for (const Script& script : kScripts) {
    CLI::App* command = Add(app, script.command, script.what, script.examples);
    // All that follows the word goes to the script as it is, --help too.
    command->prefix_command();
    command->set_help_flag();
    commands.push_back(
        {command, [&script, command] { return RunScriptCommand(script, *command); }});
  }
  return commands;
}

}  // namespace ada::cli
