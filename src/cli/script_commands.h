// Commands that are scripts of other languages.
#pragma once
#include <string>
#include <vector>

namespace ada::cli {

// Becomes the script, with these words after its name. Throws DeviceError, which says what to
// install, where the interpreter cannot be started; it does not return.
[[noreturn]] void BecomeScript(const std::string& command, const std::string& interpreter,
                               const std::string& script, const std::vector<std::string>& words);

}  // namespace ada::cli
