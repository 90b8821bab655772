// Where a value was written: messages about it begin with this.
#pragma once
#include <string>

namespace ada {

// Empty `file`: a default; line 0: `file` is "--set KEY".
struct Location {
  std::string file;
  int line = 0, column = 0;  // from 1
};

// "file:line:column", "--set KEY" or "(default)".
inline std::string ToString(const Location& where) {
  if (where.file.empty()) return "(default)";
  if (where.line == 0) return where.file;
  return where.file + ":" + std::to_string(where.line) + ":" + std::to_string(where.column);
}

}  // namespace ada
