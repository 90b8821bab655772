// The console log writes messages to stderr and the result of a command to stdout, and both to the
// run's log.txt; on a terminal it keeps one status line below the messages. Only log.cpp uses
// spdlog.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ada::telemetry {

// The order is that of --log-level and of spdlog's levels.
enum class LogLevel { kTrace, kDebug, kInfo, kWarning, kError };

// The words of --log-level, in order: trace debug info warning error.
const std::vector<std::string>& LogLevelNames();
// Throws ConfigError naming the nearest level.
LogLevel ParseLogLevel(std::string_view name);

// Each command makes one and passes it on by reference; it must outlive all that logs.
class Log {
 public:
  // Shows messages of `level` and above on the stream `descriptor` (2: stderr), and results on the
  // stream `results` (1: stdout). log.txt gets them as well, and all from info on.
  explicit Log(LogLevel level = LogLevel::kInfo, int descriptor = 2, int results = 1);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  // These are safe from any thread. A text of several lines is one message.
  void Trace(const std::string& text) { Write(LogLevel::kTrace, text); }
  void Debug(const std::string& text) { Write(LogLevel::kDebug, text); }
  void Info(const std::string& text) { Write(LogLevel::kInfo, text); }
  void Warning(const std::string& text) { Write(LogLevel::kWarning, text); }
  void Error(const std::string& text) { Write(LogLevel::kError, text); }
  void Write(LogLevel level, const std::string& text);
  void Note(const std::string& text);  // of level info, for log.txt alone
  bool Shows(LogLevel level) const;    // on the console

  // Prints the result of a command: a message of level info, but on the stream for results.
  // `colored` is the same text for a terminal with colors. Returns whether it can still be read:
  // false for a closed pipe. Throws OutputError if it cannot be written; a stream that was closed
  // from the start gets nothing.
  bool Result(const std::string& text, const std::string& colored);

  // From now on every message is also written to `path` with a time stamp, earlier messages first.
  // Throws OutputError. A write that fails later is reported once, on the console.
  void OpenFile(const std::string& path, bool append);

  // Sets the line that stays at the bottom of a terminal and is redrawn below messages; an empty
  // one removes it. Does nothing if the console is not a terminal.
  void SetStatus(const std::string& line);
  bool terminal() const;
  bool color() const;  // whether the console has colors
  int width() const;   // current columns of the terminal; 80 if unknown

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ada::telemetry
