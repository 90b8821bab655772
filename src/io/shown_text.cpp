// Walks over bytes that may be anything: what begins no valid character counts as a byte by itself.
// Each stream is asked at each call whether it gets colors: one may be a terminal and another a
// file.
#include "io/shown_text.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace ada {
namespace {

unsigned ByteAt(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
}

// The code point of the valid character of `length` bytes at `text[at]`.
unsigned CodePoint(std::string_view text, std::size_t at, std::size_t length) {
  constexpr std::array<unsigned, 5> kFirst = {0, 0x7F, 0x1F, 0x0F, 0x07};
  unsigned code = ByteAt(text, at) & kFirst[length];
  for (std::size_t i = 1; i < length; ++i) code = code << 6 | (ByteAt(text, at + i) & 0x3Fu);
  return code;
}

// C0, DEL and C1; line and paragraph separators; marks, embeddings and isolates of direction.
bool IsObeyed(unsigned code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0x61C || code == 0x200E ||
         code == 0x200F || (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

std::string MadeVisible(std::string_view text, bool keep_line_ends) {
  std::string shown;
  shown.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = CharacterLength(text, at);
    const unsigned code = length == 0 ? ByteAt(text, at) : CodePoint(text, at, length);
    if (length > 0 && (!IsObeyed(code) || (keep_line_ends && code == '\n'))) {
      shown += text.substr(at, length);
    } else {
      std::array<char, 8> escape;
      std::snprintf(escape.data(), escape.size(), code < 0x100 ? "\\x%02x" : "\\u%04x", code);
      shown += escape.data();
    }
    at += length == 0 ? 1 : length;
  }
  return shown;
}

}  // namespace

std::string Visible(std::string_view text) { return MadeVisible(text, false); }
std::string VisibleLines(std::string_view text) { return MadeVisible(text, true); }

std::string ValidUtf8(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = CharacterLength(text, at);
    valid += length == 0 ? Visible(text.substr(at, 1)) : std::string(text.substr(at, length));
    at += length == 0 ? 1 : length;
  }
  return valid;
}

std::string Shown(std::string_view text) {
  constexpr std::size_t kMost = 80;
  if (text.size() <= kMost) return "'" + Visible(text) + "'";
  std::size_t end = kMost;
  while (end > kMost - 3 && (ByteAt(text, end) & 0xC0u) == 0x80u) --end;
  return "'" + Visible(text.substr(0, end)) + "...'";
}

bool BeginsCodePoint(char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }

std::size_t TextWidth(std::string_view text) {
  constexpr std::string_view kColor = "\033[";
  std::size_t width = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text.substr(at).starts_with(kColor))
      at = std::min(text.find('m', at), text.size());
    else
      width += BeginsCodePoint(text[at]) ? 1 : 0;
  }
  return width;
}

std::string Wrapped(std::string_view text, std::size_t indent, std::size_t width,
                    std::size_t taken) {
  std::string lines;
  std::size_t used = taken;  // columns of this line
  std::size_t blanks = 0;    // that wait for a word after them
  bool has_word = false;     // this line
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    at = end + 1;
    if (!word.empty()) {
      if (has_word && used + blanks + TextWidth(word) > width) {
        lines += '\n';
        used = 0;
        blanks = indent;
      }
      lines.append(blanks, ' ') += word;
      used += blanks + TextWidth(word);
      blanks = 0;
      has_word = true;
    }
    ++blanks;
  }
  return lines;
}

namespace {

ColorChoice chosen = ColorChoice::kAuto;

// The parameter of SGR (ECMA-48, 8.3.117).
const char* CodeOf(Color color) {
  switch (color) {
    case Color::kBold:
      return "1";
    case Color::kDim:
      return "2";
    case Color::kRed:
      return "31";
    case Color::kGreen:
      return "32";
    case Color::kYellow:
      return "33";
    case Color::kPlain:
      break;
  }
  return "0";
}

}  // namespace

void SetColorChoice(ColorChoice choice) { chosen = choice; }

bool CanMoveCursor(int descriptor) {
  const char* term = std::getenv("TERM");
  return isatty(descriptor) == 1 && (term == nullptr || std::string_view(term) != "dumb");
}

bool HasColor(int descriptor) {
  if (chosen != ColorChoice::kAuto) return chosen == ColorChoice::kAlways;
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && CanMoveCursor(descriptor);
}

std::string Colored(bool on, Color color, std::string_view text) {
  if (!on || color == Color::kPlain || text.empty()) return std::string(text);
  return std::string("\033[") + CodeOf(color) + "m" + std::string(text) + "\033[0m";
}

}  // namespace ada
