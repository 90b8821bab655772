// Widths count code points and not bytes; codes for colors take no room.
#include "core/wrapped_text.h"

#include <algorithm>

namespace ada {

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

}  // namespace ada
