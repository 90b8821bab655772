#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <string_view>
#include <system_error>

#include "core/error.h"
#include "core/system_call.h"
#include "study/watch/parts.h"

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
    std::string locale(value);
    std::erase(locale, '-');
    std::transform(locale.begin(), locale.end(), locale.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
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

Signals::Signals() {
  sigemptyset(&taken_);
  for (const int number : {SIGINT, SIGTERM, SIGTSTP, SIGWINCH}) sigaddset(&taken_, number);
  pthread_sigmask(SIG_BLOCK, &taken_, &before_);
}

Signals::~Signals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int Signals::Wait(double seconds) const {
  timespec time = {};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9);
  while (true) {
    const int number = sigtimedwait(&taken_, nullptr, &time);
    if (number > 0) return number;
    if (errno != EINTR) return 0;
  }
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

void Screen::Draw(const std::vector<std::string>& lines) {
  std::string text = "\033[H";
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) text += "\r\n";
    text += lines[i] + "\033[K";
  }
  WriteOut(text + "\033[J");
}

}  // namespace ada::study
