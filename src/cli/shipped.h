// The files that come with the program: configurations and data scripts. They lie in
// PREFIX/share/ada-train beside an installed PREFIX/bin/ada-train, and in the source tree above a
// build folder.
#pragma once
#include <string>
#include <vector>

namespace ada::cli {

// The folder of the configurations. "": the program was moved away from it.
std::string ShippedConfigs();
// The file data/scripts/fetch.py. "": the same.
std::string FetchScript();

// The file of a tool, "report.py", which finds what it imports beside itself. "": the same.
std::string ToolScript(const std::string& file);

// How this program came here: "as a package", "as a wheel", "below PREFIX", "source tree", and
// "alone" where nothing that comes with it is found next to it.
std::string Installation();

// The names of all shipped configurations, in order: "lenet_fashion.yaml", "sweep/none.yaml".
std::vector<std::string> ShippedNames();

// The path of the shipped configuration that is called `name`, with or without ".yaml" and a
// leading "configs/". "": there is none.
std::string ShippedPath(const std::string& name);

// Becomes the script, with these words after its name. Throws DeviceError, which says what to
// install, where the interpreter cannot be started; it does not return.
[[noreturn]] void BecomeScript(const std::string& command, const std::string& interpreter,
                               const std::string& script, const std::vector<std::string>& words);

}  // namespace ada::cli
