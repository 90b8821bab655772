// Sends messages to the terminal around a status line, and to log.txt, by two sinks of spdlog.
#include "telemetry/log.h"

#include <fcntl.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <mutex>
#include <system_error>
#include <utility>

#include "error.h"
#include "io/file.h"
#include "io/shown_text.h"
#include "io/system_call.h"
#include "io/text.h"

namespace ada::telemetry {
namespace {

using Sink = spdlog::sinks::base_sink<std::mutex>;
using spdlog::memory_buf_t;
using spdlog::details::log_msg;

constexpr char kClearLine[] = "\r\033[K";

// The two enums have the same order: trace, debug, info, warning, error.
spdlog::level::level_enum ToSpdlog(LogLevel level) {
  return static_cast<spdlog::level::level_enum>(static_cast<int>(level));
}

// Writes all of `text`; 0 or the system's error.
int ErrorOfWriting(int descriptor, std::string_view text) {
  return WriteAll(descriptor, text) == text.size() ? 0 : errno;
}

// A terminal that was closed answers EIO, which of a file means a broken disk.
bool IsDevice(int descriptor) {
  struct stat status = {};
  return fstat(descriptor, &status) == 0 && S_ISCHR(status.st_mode);
}

// Messages as plain lines; on a terminal the status line moves out of their way.
// One write for each message, so that lines of several processes on one terminal do not mix.
class ConsoleSink : public Sink {
 public:
  explicit ConsoleSink(int descriptor)
      : descriptor_(descriptor),
        terminal_(CanMoveCursor(descriptor)),
        color_(HasColor(descriptor)) {}
  bool terminal() const { return terminal_; }
  bool color() const { return color_; }

  void SetStatus(const std::string& line) {
    const std::lock_guard lock(mutex_);
    if (!terminal_ || line == status_) return;
    status_ = line;
    WriteAll(descriptor_, kClearLine + status_);
  }

 protected:
  void sink_it_(const log_msg& message) override {
    std::string text = status_.empty() ? "" : kClearLine;
    if (message.level == spdlog::level::warn) text += Colored(color_, Color::kYellow, "warning: ");
    if (message.level == spdlog::level::err) text += Colored(color_, Color::kRed, "error: ");
    text.append(message.payload.data(), message.payload.size());
    WriteAll(descriptor_, text + "\n" + status_);
  }
  void flush_() override {}

 private:
  const int descriptor_;
  const bool terminal_, color_;
  std::string status_;
};

// log.txt: time stamp, level, text. Keeps messages until it has a file.
// Messages of before the run's folder is known are kept in `early_`. A file that fails is given up:
// the run goes on, and says so once.
class FileSink : public Sink {
 public:
  FileSink() { set_pattern("%Y-%m-%d %H:%M:%S %-7l %v"); }
  ~FileSink() override {
    if (descriptor_ >= 0) CloseFile(descriptor_);
  }

  void Open(const std::string& path, bool append) {
    const std::lock_guard lock(mutex_);
    MakeOwnFile(path, append ? std::numeric_limits<std::int64_t>::max() : 0);
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | (append ? 0 : O_TRUNC);
    const int opened = OpenFile(path, flags);
    const int error = opened < 0 ? errno : ErrorOfWriting(opened, early_);
    if (error != 0) {
      if (opened >= 0) CloseFile(opened);
      throw OutputError(path + ": cannot be written: " + std::generic_category().message(error));
    }
    if (descriptor_ >= 0) CloseFile(descriptor_);
    descriptor_ = opened;
    path_ = path;
    early_.clear();
  }

  // What is wrong with the file, once; else empty.
  std::string TakeProblem() {
    const std::lock_guard lock(mutex_);
    return std::exchange(problem_, "");
  }

 protected:
  void sink_it_(const log_msg& message) override {
    memory_buf_t line;
    formatter_->format(message, line);
    const std::string_view text(line.data(), line.size());
    if (descriptor_ < 0) {
      if (path_.empty()) early_ += text;
      return;
    }
    const int error = ErrorOfWriting(descriptor_, text);
    if (error == 0 && IsStillNamed(descriptor_, path_)) return;
    problem_ = path_ + ": cannot be written: " +
               (error != 0 ? std::generic_category().message(error)
                           : "it was deleted, moved or replaced, or its folder was") +
               "; the log goes on here only";
    CloseFile(descriptor_);
    descriptor_ = -1;
  }
  void flush_() override {}

 private:
  int descriptor_ = -1;
  std::string path_, early_, problem_;
};

}  // namespace

const std::vector<std::string>& LogLevelNames() {
  static const std::vector<std::string> names = {"trace", "debug", "info", "warning", "error"};
  return names;
}

LogLevel ParseLogLevel(std::string_view name) {
  const std::vector<std::string>& names = LogLevelNames();
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (names[i] == name) return static_cast<LogLevel>(i);
  }
  const std::string nearest = NearestName(name, names);
  throw ConfigError("--log-level " + std::string(name) +
                    ": expected trace, debug, info, warning or error" +
                    (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
}

// The file gets info and above whatever the console shows, as it is read when something went wrong.
struct Log::Impl {
  std::shared_ptr<ConsoleSink> console;
  std::shared_ptr<FileSink> file = std::make_shared<FileSink>();
  int descriptor, results;
  spdlog::logger logger;

  Impl(LogLevel level, int fd, int results_fd)
      : console(std::make_shared<ConsoleSink>(fd)),
        descriptor(fd),
        results(results_fd),
        logger("ada", {console, file}) {
    const spdlog::level::level_enum shown = ToSpdlog(level);
    console->set_level(shown);
    file->set_level(std::min(shown, spdlog::level::info));
    logger.set_level(std::min(shown, spdlog::level::info));
  }
};

Log::Log(LogLevel level, int descriptor, int results)
    : impl_(std::make_unique<Impl>(level, descriptor, results)) {}
// Takes the status line away, or the shell's prompt would stand after it.
Log::~Log() { SetStatus(""); }

// Control characters become visible: names from files cannot move the cursor. A problem with the
// file is asked for after the message, since a sink cannot log.
void Log::Write(LogLevel level, const std::string& text) {
  const std::string shown = VisibleLines(text);
  impl_->logger.log(ToSpdlog(level), spdlog::string_view_t(shown.data(), shown.size()));
  const std::string problem = impl_->file->TakeProblem();
  if (!problem.empty()) Warning(problem);
}

void Log::Note(const std::string& text) {
  const std::string shown = VisibleLines(text);
  impl_->file->log(log_msg(impl_->logger.name(), spdlog::level::info, shown));
}

// The file gets the text without colors.
bool Log::Result(const std::string& text, const std::string& colored) {
  const std::string visible = VisibleLines(text);
  impl_->file->log(log_msg(impl_->logger.name(), spdlog::level::info, visible));
  if (!Shows(LogLevel::kInfo)) return true;
  SetStatus("");
  const int error =
      ErrorOfWriting(impl_->results, (HasColor(impl_->results) ? colored : visible) + "\n");
  if (error == EPIPE || (error == EIO && IsDevice(impl_->results))) return false;
  if (error != 0 && error != EBADF)
    throw OutputError("standard output cannot be written: " +
                      std::generic_category().message(error));
  return true;
}

bool Log::Shows(LogLevel level) const { return impl_->console->should_log(ToSpdlog(level)); }

void Log::OpenFile(const std::string& path, bool append) { impl_->file->Open(path, append); }

void Log::SetStatus(const std::string& line) { impl_->console->SetStatus(line); }

bool Log::terminal() const { return impl_->console->terminal(); }

bool Log::color() const { return impl_->console->color(); }

int Log::width() const {
  winsize size = {};
  if (ioctl(impl_->descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return 80;
}

}  // namespace ada::telemetry
