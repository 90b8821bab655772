// Standard output as a terminal: its size, a screen of its own that is redrawn in place, and the
// signals that matter meanwhile.
#pragma once
#include <csignal>
#include <cstddef>
#include <string>
#include <vector>

namespace ada::study {

// Whether standard output is a terminal that can move its cursor.
bool IsScreen();
// Whether the environment's locale (LC_ALL, LC_CTYPE, LANG: the first that is set) has UTF-8.
bool LocaleIsUtf8();

struct ScreenSize {
  std::size_t columns = 80, lines = 24;
};
ScreenSize SizeOfScreen();  // 80 x 24 where the terminal does not say

// All of `text` to standard output; OutputError with the system's reason.
void WriteOut(const std::string& text);

// While it lives, SIGINT, SIGTERM, SIGTSTP and SIGWINCH are taken by Wait alone.
class Signals {
 public:
  Signals();
  ~Signals();  // as it was before; a signal that nobody waited for acts now
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;
  // The next signal's number, or 0 after `seconds` without one.
  int Wait(double seconds) const;

 private:
  sigset_t taken_, before_;
};

// The terminal's alternate screen without a cursor. The destructor gives back the old one.
class Screen {
 public:
  Screen() { Enter(); }
  ~Screen();
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void Enter();
  void Leave();
  // Redraws the whole screen in one write, each line over the old one. At most as many lines as
  // the screen has.
  void Draw(const std::vector<std::string>& lines);

 private:
  bool entered_ = false;
};

}  // namespace ada::study
