// watch: the loop of looking, drawing and waiting, on a terminal or for a pipe. It only reads files
// and never holds the run's folder, so it cannot disturb the run. The terminal is used by its
// escape codes (ECMA-48 and xterm's alternate screen) and by POSIX calls, without a library.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>
#include <vector>

#include "error.h"
#include "io/shown_text.h"
#include "io/system_call.h"
#include "io/text.h"
#include "study/commands.h"
#include "study/run_files.h"
#include "study/watch/watch_view.h"

namespace ada::study {
namespace {

// --- The terminal ---

constexpr char kEnter[] = "\033[?1049h\033[?25l\033[H\033[2J";  // other screen, no cursor, empty
constexpr char kLeave[] = "\033[?25h\033[?1049l";

// Says whether standard output is a terminal that can move its cursor.
bool IsScreen() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

struct ScreenSize {
  std::size_t columns = 80, lines = 24;
};
// 80 x 24 where the terminal does not say.
ScreenSize SizeOfScreen() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

// Writes all of `text` to standard output; throws OutputError with the system's reason.
void WriteOut(const std::string& text) {
  if (WriteAll(STDOUT_FILENO, text) < text.size()) {
    const int error = errno;
    throw OutputError("standard output: cannot be written: " +
                      std::generic_category().message(error));
  }
}

// While it lives, SIGINT, SIGTERM, SIGTSTP and SIGWINCH are taken only by Wait: blocked signals
// stay pending and are read from a descriptor, so they can be waited for together with keys and a
// time. One object at a time. Signals are blocked for the whole process as long as no other thread
// was started before; watch has one thread.
class Signals {
 public:
  Signals() {
    sigemptyset(&taken_);
    for (const int number : {SIGINT, SIGTERM, SIGTSTP, SIGWINCH}) sigaddset(&taken_, number);
    pthread_sigmask(SIG_BLOCK, &taken_, &before_);
    fd_ = signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd_ >= 0) return;
    const int error = errno;
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    throw DeviceError("signals cannot be waited for: " + std::generic_category().message(error));
  }
  // Restores handlers; a pending signal takes effect now.
  ~Signals() {
    close(fd_);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // Returns the next signal's number, kQuit where `q` is typed and `keys`, or 0 after `seconds`
  // without any of these.
  static constexpr int kQuit = -1;
  int Wait(double seconds, bool keys = false) const {
    const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
    while (true) {
      const std::chrono::duration<double> left = end - std::chrono::steady_clock::now();
      const double rest = std::max(left.count(), 0.0);
      timespec time = {};
      time.tv_sec = static_cast<time_t>(rest);
      time.tv_nsec = static_cast<long>((rest - std::floor(rest)) * 1e9);
      std::array<pollfd, 2> waited = {{{fd_, POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
      // The time that is left is computed anew after each interruption.
      const int ready = ppoll(waited.data(), keys ? 2 : 1, &time, nullptr);
      if (ready == 0) return 0;
      if (ready < 0) continue;  // interrupted by a signal that is not waited for
      signalfd_siginfo signal = {};
      if (read(fd_, &signal, sizeof signal) == static_cast<ssize_t>(sizeof signal))
        return static_cast<int>(signal.ssi_signo);
      char key = 0;
      if (!keys || waited[1].revents == 0) continue;
      // One key at a time; others than q are passed over.
      const ssize_t typed = read(STDIN_FILENO, &key, 1);
      if (typed == 1 && (key == 'q' || key == 'Q')) return kQuit;
      if (typed == 0) keys = false;  // its end
    }
  }

 private:
  sigset_t taken_, before_;
  int fd_ = -1;  // of a signalfd
};

// While it lives and standard input is the terminal of this program, keys are read as they are
// typed and not shown.
class KeyInput {
 public:
  KeyInput() { Take(); }
  ~KeyInput() { GiveBack(); }
  KeyInput(const KeyInput&) = delete;
  KeyInput& operator=(const KeyInput&) = delete;
  void Take() {
    // Changing the terminal from the background raises SIGTTOU, which stops the program.
    if (isatty(STDIN_FILENO) != 1 || tcgetpgrp(STDIN_FILENO) != getpgrp()) return;
    if (tcgetattr(STDIN_FILENO, &before_) != 0) return;
    termios keys = before_;
    // Keys come without a line end and are not echoed; Ctrl-C stays a signal.
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    taken_ = tcsetattr(STDIN_FILENO, TCSANOW, &keys) == 0;
  }
  void GiveBack() {
    if (taken_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
    taken_ = false;
  }
  bool taken() const { return taken_; }

 private:
  termios before_ = {};
  bool taken_ = false;
};

// Shows the terminal's alternate screen without a cursor. The destructor gives back the old one.
class Screen {
 public:
  Screen() { Enter(); }
  ~Screen() {
    if (entered_) WriteAll(STDOUT_FILENO, kLeave);  // an error has nobody to go to
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Enter() {
    WriteOut(kEnter);
    entered_ = true;
  }
  void Leave() {
    WriteOut(kLeave);
    entered_ = false;
  }
  // Redraws the whole screen in one write, each line over the old one. There are at most as many
  // lines as the screen has.
  void Draw(const std::vector<std::string>& lines) {
    // Lines are drawn over the old ones and cleared to their ends, which does not flicker.
    std::string text = "\033[H";
    for (std::size_t i = 0; i < lines.size(); ++i) {
      if (i > 0) text += "\r\n";
      text += lines[i] + "\033[K";
    }
    WriteOut(text + "\033[J");
  }

 private:
  bool entered_ = false;
};

// --- The run ---

constexpr std::size_t kPlainWidth = 100;

std::string Joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

// A run that is watched: its state after each look, and whether it has ended.
class WatchedRun {
 public:
  explicit WatchedRun(const std::string& folder) : feed_(folder) { state_.folder = folder; }

  const WatchState& state() const { return state_; }
  bool ended() const { return state_.status != "running"; }

  // `logged` as in WatchFeed. Returns whether there is something new to see.
  bool Poll(const std::function<void()>& logged = {}) {
    // The status first: what the run wrote before it ended is read then.
    const std::string status = RunState(state_.folder);
    const std::string before = state_.status;
    const bool changed = feed_.Poll(state_, logged);
    state_.status = status;
    return changed || status != before;
  }

 private:
  WatchFeed feed_;
  WatchState state_;
};

// Every layer, below each other.
std::string WholeTable(const WatchState& state) {
  const std::size_t width = IsScreen() ? SizeOfScreen().columns : kPlainWidth;
  // A height of 0 means all layers.
  return Joined(DrawWatch(
      state,
      {.width = width, .height = 0, .utf8 = LocaleIsUtf8(), .color = HasColor(STDOUT_FILENO)}));
}

// Blocks of lines: how things stand, then one a logged step, then the end.
int WatchPlainly(WatchedRun& run, double interval, const Signals& signals) {
  run.Poll();
  WriteOut(WholeTable(run.state()));
  while (!run.ended()) {
    const int signal = signals.Wait(interval);
    if (signal == SIGINT || signal == SIGTERM) return 128 + signal;
    // SIGTSTP is blocked and only read; SIGSTOP cannot be, so it does what Ctrl-Z asks for.
    if (signal == SIGTSTP) raise(SIGSTOP);
    run.Poll([&] { WriteOut("\n" + WholeTable(run.state())); });
    // The last block has the status with which the run ended.
    if (run.ended()) WriteOut("\n" + WholeTable(run.state()));
  }
  return 0;
}

void DrawOn(Screen& screen, const WatchState& state) {
  const ScreenSize size = SizeOfScreen();
  screen.Draw(DrawWatch(state, {.width = size.columns,
                                .height = size.lines,
                                .utf8 = LocaleIsUtf8(),
                                .color = HasColor(STDOUT_FILENO)}));
}

// The table in place; returns the signal that ended it, 0: the run has ended, or `q` was typed.
int WatchOnScreen(WatchedRun& run, double interval, const Signals& signals) {
  Screen screen;
  KeyInput keys;
  run.Poll();
  DrawOn(screen, run.state());
  while (!run.ended()) {
    const int signal = signals.Wait(interval, keys.taken());
    if (signal == Signals::kQuit) return 0;
    if (signal == SIGINT || signal == SIGTERM) return signal;
    if (signal == SIGTSTP) {
      // The shell gets its own screen and keys back while the program is stopped.
      screen.Leave();
      keys.GiveBack();
      raise(SIGSTOP);
      keys.Take();
      screen.Enter();
    }
    if (run.Poll() || signal != 0) DrawOn(screen, run.state());
  }
  return 0;
}

}  // namespace

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    std::string locale = LowerCase(std::string_view(value));
    // Both "UTF-8" and "utf8" are usual.
    std::erase(locale, '-');
    return locale.find("utf8") != std::string::npos;
  }
  return false;
}

int Watch(const WatchOptions& options) {
  RequireRun(options.folder);
  WatchedRun run(options.folder);
  if (options.once) {
    run.Poll();
    WriteOut(WholeTable(run.state()));
    return 0;
  }
  const Signals signals;
  if (!IsScreen()) return WatchPlainly(run, options.interval, signals);
  const int signal = WatchOnScreen(run, options.interval, signals);
  WriteOut(WholeTable(run.state()));  // stays on the ordinary screen
  return signal == 0 ? 0 : 128 + signal;
}

}  // namespace ada::study
