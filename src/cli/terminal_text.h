// What is printed for programs, such as CSV, names things as files name them: byte for byte in a
// pipe or a file, visible (core/shown_text.h) where a terminal shows it.
#pragma once
#include <memory>
#include <ostream>
#include <streambuf>

namespace ada::cli {

// While it lives, text for `stream` is made visible, if `descriptor`, to which the stream goes, is
// a terminal.
// Dispatch makes one for each of stdout and stderr. The stream must outlive it.
class TerminalText {
 public:
  TerminalText(std::ostream& stream, int descriptor);
  ~TerminalText();
  TerminalText(const TerminalText&) = delete;
  TerminalText& operator=(const TerminalText&) = delete;

 private:
  std::ostream& stream_;
  std::streambuf* const before_;
  std::unique_ptr<std::streambuf> filter_;  // null where there is no terminal
};

}  // namespace ada::cli
