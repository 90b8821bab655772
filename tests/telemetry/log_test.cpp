// Log: what reaches the console and log.txt, and the status line on a (pseudo) terminal.
#include "telemetry/log.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <pty.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "error.h"
#include "io/shown_text.h"
#include "telemetry/progress.h"
#include "temp_folder.h"

using ada::telemetry::EvaluationProgress;
using ada::telemetry::Log;
using ada::telemetry::LogLevel;
using ada::telemetry::ParseLogLevel;
using ada::telemetry::Progress;
using ada::testing::TempFolder;

namespace {

// A file as a console.
class Console {
 public:
  explicit Console(const TempFolder& folder)
      : folder_(folder), fd_(open((folder / "console").c_str(), O_WRONLY | O_CREAT, 0666)) {}
  ~Console() { close(fd_); }
  int fd() const { return fd_; }
  std::string text() const { return folder_.Read("console"); }

 private:
  const TempFolder& folder_;
  int fd_;
};

// A pseudo terminal of `columns` columns; what was written comes back raw.
class Terminal {
 public:
  explicit Terminal(int columns) {
    setenv("TERM", "xterm", 1);
    winsize size = {};
    size.ws_col = static_cast<unsigned short>(columns);
    size.ws_row = 24;
    REQUIRE(openpty(&master_, &slave_, nullptr, nullptr, &size) == 0);
    fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    close(master_);
    close(slave_);
  }
  int fd() const { return slave_; }
  std::string Take() {
    std::string text;
    char piece[4096];
    for (ssize_t got; (got = read(master_, piece, sizeof piece)) > 0;) text.append(piece, got);
    return text;
  }

 private:
  int master_ = -1, slave_ = -1;
};

void WriteAll(Log& log) {
  log.Trace("t");
  log.Debug("d");
  log.Info("i {} %s");
  log.Warning("w");
  log.Error("e");
}

// log.txt without its time stamps ("2024-05-06 07:08:09 "), each of which is checked.
std::string WithoutStamps(const std::string& text) {
  const std::string form = "dddd-dd-dd dd:dd:dd ";
  std::istringstream lines(text);
  std::string rest;
  for (std::string line; std::getline(lines, line);) {
    REQUIRE(line.size() > form.size());
    for (std::size_t i = 0; i < form.size(); ++i) {
      CHECK((form[i] == 'd' ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i]));
    }
    rest += line.substr(form.size()) + "\n";
  }
  return rest;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("levels on the console and in the file") {
    struct Case {
      const char* level;
      const char* console;
      const char* file;
    };
    const char* all = "trace   t\ndebug   d\ninfo    i {} %s\nwarning w\nerror   e\n";
    const char* from_debug = "debug   d\ninfo    i {} %s\nwarning w\nerror   e\n";
    const char* from_info = "info    i {} %s\nwarning w\nerror   e\n";
    const std::vector<Case> cases = {
        {"trace", "t\nd\ni {} %s\nwarning: w\nerror: e\n", all},
        {"debug", "d\ni {} %s\nwarning: w\nerror: e\n", from_debug},
        {"info", "i {} %s\nwarning: w\nerror: e\n", from_info},
        {"warning", "warning: w\nerror: e\n", from_info},
        {"error", "error: e\n", from_info},
    };
    for (const Case& c : cases) {
      CAPTURE(c.level);
      const TempFolder folder;
      const Console console(folder);
      Log log(ParseLogLevel(c.level), console.fd());
      log.OpenFile(folder / "log.txt", false);
      WriteAll(log);
      log.SetStatus("never shown: no terminal");
      CHECK_FALSE(log.terminal());
      CHECK(console.text() == c.console);
      CHECK(WithoutStamps(folder.Read("log.txt")) == c.file);
    }
  }

  TEST_CASE("level names") {
    CHECK(ada::telemetry::LogLevelNames().size() == 5);
    CHECK_THROWS_WITH_AS(
        ParseLogLevel("debgu"),
        "--log-level debgu: expected trace, debug, info, warning or error; did you "
        "mean debug?",
        ada::ConfigError);
    CHECK_THROWS_WITH_AS(ParseLogLevel("quiet!"),
                         "--log-level quiet!: expected trace, debug, info, warning or error",
                         ada::ConfigError);
  }

  TEST_CASE("messages before the file is open are in it; a resume appends") {
    const TempFolder folder;
    const Console console(folder);
    {
      Log log(LogLevel::kInfo, console.fd());
      log.Info("early");
      log.OpenFile(folder / "log.txt", true);
      log.Info("late");
    }
    {
      Log log(LogLevel::kInfo, console.fd());
      log.OpenFile(folder / "log.txt", true);
      log.Info("resumed");
    }
    CHECK(WithoutStamps(folder.Read("log.txt")) ==
          "info    early\ninfo    late\ninfo    resumed\n");
    {
      Log log(LogLevel::kInfo, console.fd());
      log.OpenFile(folder / "log.txt", false);
      log.Info("afresh");
    }
    CHECK(WithoutStamps(folder.Read("log.txt")) == "info    afresh\n");
  }

  TEST_CASE("a log file that cannot be written") {
    const TempFolder folder;
    const Console console(folder);
    Log log(LogLevel::kInfo, console.fd());
    const std::string message =
        folder / "no/log.txt" + ": cannot be written: No such file or directory";
    CHECK_THROWS_WITH_AS(log.OpenFile(folder / "no/log.txt", true), message.c_str(),
                         ada::OutputError);
    std::filesystem::create_symlink("/dev/full", folder / "log.txt");
    log.OpenFile(folder / "log.txt", true);
    log.Info("one");
    log.Info("two");
    CHECK(console.text() ==
          "one\nwarning: " + folder / "log.txt" +
              ": cannot be written: No space left on device; the log goes on here "
              "only\ntwo\n");
  }

  TEST_CASE("the status line of a terminal moves out of the way of messages") {
    Terminal terminal(60);
    {
      Log log(LogLevel::kInfo, terminal.fd());
      CHECK(log.terminal());
      CHECK(log.width() == 60);
      log.Info("first");
      CHECK(terminal.Take() == "first\r\n");
      log.SetStatus("50 %");
      CHECK(terminal.Take() == "\r\033[K50 %");
      log.SetStatus("50 %");
      CHECK(terminal.Take() == "");
      log.Info("message");
      CHECK(terminal.Take() == "\r\033[Kmessage\r\n50 %");
      log.Debug("not shown");
      CHECK(terminal.Take() == "");
      log.SetStatus("60 %");
      CHECK(terminal.Take() == "\r\033[K60 %");
    }
    CHECK(terminal.Take() == "\r\033[K");
  }

  TEST_CASE("results go to another stream than messages, and into log.txt") {
    const TempFolder folder;
    const Console console(folder);
    const int results = open((folder / "results").c_str(), O_RDWR | O_CREAT, 0666);
    for (const LogLevel level : {LogLevel::kInfo, LogLevel::kWarning}) {
      Log log(level, console.fd(), results);
      log.OpenFile(folder / "log.txt", level == LogLevel::kWarning);
      CHECK(log.Result("a result\nof two \x1b lines", "never: no terminal"));
      log.Info("done");
    }
    CHECK(folder.Read("results") == "a result\nof two \\x1b lines\n");  // --quiet shows none
    CHECK(console.text() == "done\n");
    const std::string text = folder.Read("log.txt");
    CHECK(text.find("info    a result\nof two \\x1b lines\n") != std::string::npos);
    CHECK(text.find("a result") != text.rfind("a result"));
    close(results);
    Log closed(LogLevel::kInfo, console.fd(), results);
    CHECK(closed.Result("nobody asked for it", ""));
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    close(ends[0]);
    std::signal(SIGPIPE, SIG_IGN);
    CHECK_FALSE(Log(LogLevel::kInfo, console.fd(), ends[1]).Result("nobody reads it", ""));
    std::signal(SIGPIPE, SIG_DFL);
    close(ends[1]);
    const int full = open("/dev/full", O_WRONLY);
    CHECK_THROWS_WITH_AS(Log(LogLevel::kInfo, console.fd(), full).Result("no room", ""),
                         "standard output cannot be written: No space left on device",
                         ada::OutputError);
    close(full);
  }

  TEST_CASE("colours: on a terminal, unless NO_COLOR or --color say otherwise") {
    const TempFolder folder;
    const Console console(folder);
    Terminal terminal(60);
    struct Case {
      const char* no_color;
      const char* term;
      ada::ColorChoice choice;
      bool on_terminal, elsewhere;
    };
    using enum ada::ColorChoice;
    for (const Case& c : {Case{nullptr, "xterm", kAuto, true, false},
                          {"", "xterm", kAuto, true, false},
                          {"1", "xterm", kAuto, false, false},
                          {nullptr, "dumb", kAuto, false, false},
                          {"1", "dumb", kAlways, true, true},
                          {nullptr, "xterm", kNever, false, false}}) {
      c.no_color == nullptr ? unsetenv("NO_COLOR") : setenv("NO_COLOR", c.no_color, 1);
      setenv("TERM", c.term, 1);
      ada::SetColorChoice(c.choice);
      CHECK(ada::HasColor(terminal.fd()) == c.on_terminal);
      CHECK(ada::HasColor(console.fd()) == c.elsewhere);
      Log log(LogLevel::kInfo, terminal.fd(), terminal.fd());
      CHECK(log.color() == c.on_terminal);
      log.Warning("w");
      log.Error("e");
      CHECK(log.Result("plain", "colored"));
      CHECK(terminal.Take() == (c.on_terminal ? "\033[33mwarning: \033[0mw\r\n"
                                                "\033[31merror: \033[0me\r\ncolored\r\n"
                                              : "warning: w\r\nerror: e\r\nplain\r\n"));
    }
    unsetenv("NO_COLOR");
    ada::SetColorChoice(kAuto);
  }

  TEST_CASE("an evaluation shows how far it is, and takes its line away") {
    Terminal terminal(60);
    double now = 0;
    {
      Log log(LogLevel::kInfo, terminal.fd());
      EvaluationProgress progress(log, true, "evaluating test", 1000, [&] { return now; });
      CHECK(terminal.Take() == "\r\033[Kevaluating test");
      progress.Update(10);
      CHECK(terminal.Take() == "");
      now = 1;
      progress.Update(100);
      CHECK(terminal.Take() == "\r\033[Kevaluating test  100/1000 images  90 img/s  left 0:10");
    }
    CHECK(terminal.Take() == "\r\033[K");
    const TempFolder folder;
    const Console console(folder);
    Log log(LogLevel::kInfo, console.fd());
    EvaluationProgress progress(log, true, "evaluating test", 1000, [&] { return now; });
    for (int i = 1; i <= 45; ++i, now += 1) progress.Update(10 * i);
    CHECK(console.text() == "evaluating test  310/1000 images  10 img/s  left 1:09\n");
  }

  TEST_CASE("a dumb terminal gets no status line") {
    Terminal terminal(60);
    setenv("TERM", "dumb", 1);
    Log log(LogLevel::kInfo, terminal.fd());
    CHECK_FALSE(log.terminal());
    log.SetStatus("50 %");
    CHECK(terminal.Take() == "");
  }

  TEST_CASE("progress on a terminal: ten redraws a second at most, within its width, cleared") {
    Terminal terminal(60);
    double now = 100;
    {
      Log log(LogLevel::kInfo, terminal.fd());
      Progress progress(log, true, [&] { return now; });
      int drawn = 0;
      for (int step = 1; step <= 1000; ++step) {  // ten seconds
        now += 0.01;
        progress.Update({.epoch = 1, .epochs = 2, .step = step, .steps = 2000, .loss = 1.5}, 128);
        const std::string text = terminal.Take();
        if (text.empty()) continue;
        ++drawn;
        CHECK(text.starts_with("\r\033[K"));
        CHECK(text.find(" img/s  \033[1mleft 0:") != std::string::npos);
        CHECK(text.size() <= 4 + 59 + 8);  // a code before and after the time that is left
      }
      CHECK(drawn >= 90);
      CHECK(drawn <= 100);
      progress.EndEpoch();  // a line that stays, the whole of it
      CHECK(terminal.Take().find("step 1000/2000  loss 1.5  acc 0.0%  scale 1  skipped 0  12.8k "
                                 "img/s  left 0:10\r\n") != std::string::npos);
      progress.Pause("evaluating");
      CHECK(terminal.Take() == "\r\033[Kevaluating");
    }
    CHECK(terminal.Take() == "\r\033[K");
  }

  TEST_CASE("without a terminal: plain lines, every 30 s and at epoch ends; unwanted: log.txt's") {
    const TempFolder folder, unwanted;
    const Console console(folder), quiet(unwanted);
    Terminal terminal(80);
    for (const int fd : {console.fd(), quiet.fd(), terminal.fd()}) {
      double now = 0;
      Log log(LogLevel::kInfo, fd);
      const bool wanted = fd == console.fd();
      if (!wanted) log.OpenFile(unwanted / "log.txt", false);
      Progress progress(log, wanted, [&] { return now; });
      for (int step = 1; step <= 70; ++step) {  // a second each
        now += 1;
        progress.Update({.epoch = 1, .epochs = 1, .step = step, .steps = 70}, 100);
      }
      progress.EndEpoch();
      progress.EndEpoch();  // nothing new
    }
    std::string expected;
    for (const char* step : {"30", "60", "70"}) {
      expected += std::string("epoch 1/1  step ") + step +
                  "/70  loss 0  acc 0.0%  scale 1  skipped 0  100 img/s  left 0:" +
                  (step[0] == '3'   ? "40"
                   : step[0] == '6' ? "10"
                                    : "00") +
                  "\n";
    }
    CHECK(console.text() == expected);
    CHECK(quiet.text() == "");
    CHECK(terminal.Take() == "");
    // Each line follows its time stamp.
    const std::string kept = unwanted.Read("log.txt");
    for (const char* step : {"step 30/70", "step 60/70", "step 70/70"})
      CHECK(kept.find(step) != std::string::npos);
  }

  TEST_CASE("what a terminal would obey is visible, on the console and in log.txt") {
    const TempFolder folder;
    Terminal terminal(80);
    {
      Log log(LogLevel::kInfo, terminal.fd());
      log.OpenFile(folder / "log.txt", false);
      log.Info(
          "layer \x1b[2J\xC2\x9B"
          "1A\r is odd\nand goes on");
    }
    CHECK(terminal.Take() == "layer \\x1b[2J\\x9b1A\\x0d is odd\r\nand goes on\r\n");
    const std::string text = folder.Read("log.txt");
    CHECK(text.ends_with("layer \\x1b[2J\\x9b1A\\x0d is odd\nand goes on\n"));
  }
}
