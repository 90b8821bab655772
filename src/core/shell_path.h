// A path in a command that a message tells the reader to type.
#pragma once
#include <string>

#include "core/text.h"

namespace ada {

// `path` as a word of a command line, which is not read as an option: "./-x" of "-x".
inline std::string ShellPath(const std::string& path) {
  return ShellWord(path.starts_with('-') ? "./" + path : path);
}

}  // namespace ada
