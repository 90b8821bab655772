// Every error that this program reports is one of these; only main.cpp turns them into exit codes.
// A message says what is wrong, where, what was expected and what to do. No other module exits or
// prints errors.
#pragma once
#include <cstddef>
#include <stdexcept>
#include <string>

namespace ada {

// what() ends at a NUL, which a name in a damaged file may contain: it is replaced by \x00.
inline std::string WithVisibleNul(std::string text) {
  for (std::size_t at = 0; (at = text.find('\0', at)) != std::string::npos; ++at)
    text.replace(at, 1, "\\x00");
  return text;
}

// The base of all expected failures; `exit_code` is the process's status.
class Error : public std::runtime_error {
 public:
  Error(int exit_code, const std::string& message)
      : std::runtime_error(WithVisibleNul(message)), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// Defines a kind of error with its exit code, which is part of the interface for scripts.
#define ADA_DEFINE_ERROR(Name, code)                                    \
  class Name : public Error {                                           \
   public:                                                              \
    explicit Name(const std::string& message) : Error(code, message) {} \
  }

ADA_DEFINE_ERROR(ConfigError, 2);     // command line, YAML, a refused output folder
ADA_DEFINE_ERROR(DataError, 3);       // data sets, weights, checkpoints that cannot be read
ADA_DEFINE_ERROR(DeviceError, 4);     // device missing, not built in, out of its memory
ADA_DEFINE_ERROR(TrainingError, 5);   // a policy or train.stop_after_skips ends the run
ADA_DEFINE_ERROR(OutputError, 6);     // a log or checkpoint cannot be written
ADA_DEFINE_ERROR(InternalError, 70);  // a broken invariant: a bug in this program
#undef ADA_DEFINE_ERROR

// Throws InternalError naming the place when `condition` is false.
#define ADA_CHECK(condition)                                                              \
  do {                                                                                    \
    if (!(condition))                                                                     \
      throw ::ada::InternalError(std::string(__FILE__) + ":" + std::to_string(__LINE__) + \
                                 ": check failed: " #condition);                          \
  } while (false)

// The place where a value was written: messages about it begin with this. Empty `file`: a default
// value; line 0: `file` is "--set KEY".
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

// "file:line:column: ", the start of a message; "" where the place is not known.
inline std::string PlacePrefix(const Location& where) {
  return where.file.empty() && where.line == 0 ? "" : ToString(where) + ": ";
}

}  // namespace ada
