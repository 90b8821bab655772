// Puts a stream buffer in front of a stream, which makes each whole line visible before it passes
// it on.
#include <unistd.h>

#include <string>

#include "cli/output.h"
#include "io/shown_text.h"

namespace ada::cli {
namespace {

// Keeps a line until it is whole: no character is looked at in two pieces.
// A stream buffer in front of another one. It passes whole lines on, and the rest when it is
// flushed.
class Filter : public std::streambuf {
 public:
  explicit Filter(std::streambuf* to) : to_(to) {}

 protected:
  int_type overflow(int_type c) override {
    if (traits_type::eq_int_type(c, traits_type::eof())) return traits_type::not_eof(c);
    line_ += traits_type::to_char_type(c);
    return line_.back() != '\n' || Pass() ? c : traits_type::eof();
  }
  // Text without a line end is only kept; that is success.
  std::streamsize xsputn(const char* text, std::streamsize size) override {
    line_.append(text, static_cast<std::size_t>(size));
    return line_.find('\n') == std::string::npos || Pass() ? size : 0;
  }
  int sync() override { return Pass() && to_->pubsync() == 0 ? 0 : -1; }

 private:
  bool Pass() {
    const std::string shown = VisibleLines(line_);
    line_.clear();
    const auto size = static_cast<std::streamsize>(shown.size());
    return to_->sputn(shown.data(), size) == size;
  }

  std::streambuf* const to_;
  std::string line_;
};

}  // namespace

TerminalText::TerminalText(std::ostream& stream, int descriptor)
    : stream_(stream), before_(stream.rdbuf()) {
  if (isatty(descriptor) == 1) Begin();
}

TerminalText::TerminalText(std::ostream& stream) : stream_(stream), before_(stream.rdbuf()) {
  Begin();
}

void TerminalText::Begin() {
  filter_ = std::make_unique<Filter>(before_);
  stream_.rdbuf(filter_.get());
}

TerminalText::~TerminalText() {
  if (filter_ == nullptr) return;
  stream_.flush();
  const std::ios::iostate state = stream_.rdstate();
  // Exchanging the buffer clears the stream's state, which main.cpp still asks for.
  stream_.rdbuf(before_);  // forgets what went wrong
  stream_.clear(state);
}

}  // namespace ada::cli
