// The terminal by its escape codes (ECMA-48 and xterm's alternate screen) and by POSIX calls,
// without a library.
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>

#include "error.h"
#include "io/system_call.h"
#include "io/text.h"
#include "study/watch/watch_view.h"

namespace ada::study {
namespace {

constexpr char kEnter[] = "\033[?1049h\033[?25l\033[H\033[2J";  // other screen, no cursor, empty
constexpr char kLeave[] = "\033[?25h\033[?1049l";

}  // namespace

bool IsScreen() {
  const char* term = std::getenv("TERM");
  return isatty(STDOUT_FILENO) == 1 && term != nullptr && std::string_view(term) != "dumb";
}

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

ScreenSize SizeOfScreen() {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) {
    return {};
  }
  return {size.ws_col, size.ws_row};
}

void WriteOut(const std::string& text) {
  if (WriteAll(STDOUT_FILENO, text) < text.size()) {
    const int error = errno;
    throw OutputError("standard output: cannot be written: " +
                      std::generic_category().message(error));
  }
}

// Blocked signals stay pending and are read from a descriptor, so they can be waited for together
// with keys and a time.
Signals::Signals() {
  sigemptyset(&taken_);
  for (const int number : {SIGINT, SIGTERM, SIGTSTP, SIGWINCH}) sigaddset(&taken_, number);
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
  fd_ = signalfd(-1, &taken_, SFD_CLOEXEC | SFD_NONBLOCK);
  if (fd_ >= 0) return;
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  throw DeviceError("signals cannot be waited for: " + std::generic_category().message(error));
}

Signals::~Signals() {
  close(fd_);
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

int Signals::Wait(double seconds, bool keys) const {
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

void KeyInput::Take() {
  // A program in the background would be stopped for it.
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

void KeyInput::GiveBack() {
  if (taken_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  taken_ = false;
}

Screen::~Screen() {
  if (entered_) WriteAll(STDOUT_FILENO, kLeave);  // an error has nobody to go to
}

void Screen::Enter() {
  WriteOut(kEnter);
  entered_ = true;
}

void Screen::Leave() {
  WriteOut(kLeave);
  entered_ = false;
}

// One write, so that no half of a screen is seen.
void Screen::Draw(const std::vector<std::string>& lines) {
  // Lines are drawn over the old ones and cleared to their ends, which does not flicker.
  std::string text = "\033[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += lines[i] + "\033[K";
  }
  WriteOut(text + "\033[J");
}

}  // namespace ada::study
