// The console log shows messages on stderr, the result of a command on stdout, and writes both into
// the run's log.txt; on a terminal it keeps one status line below messages. Only log.cpp knows
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

// A command makes one and hands it down by reference; it must outlive all that logs.
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
  bool Shows(LogLevel level) const;  // on the console

  // Says what a command was run for: a message of level info, but for the stream of results.
  // `colored` is the same text for a terminal with colors. Returns whether somebody reads it:
  // false for a closed pipe. Throws OutputError where it cannot be written; a stream that was
  // closed from the start gets nothing.
  bool Result(const std::string& text, const std::string& colored);

  // From now on every message is a line with a time stamp in `path` too; those of before come
  // first. Throws OutputError. A write that fails later is reported once on the console.
  void OpenFile(const std::string& path, bool append);

  // Sets the line that stays at the bottom of a terminal, redrawn below messages; an empty one
  // takes it away. Nothing happens where the console is no terminal.
  void SetStatus(const std::string& line);
  bool terminal() const;
  bool color() const;  // whether the console has colors
  int width() const;   // columns of the terminal now; 80 where it does not say

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ada::telemetry
