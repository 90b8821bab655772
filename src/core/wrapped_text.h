// Lines of text for terminals: how wide a text is (one column a code point), and text that is
// broken between words.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ada {

// Columns that every terminal has.
inline constexpr std::size_t kTerminalWidth = 80;

// Returns whether `c` is the first byte of a UTF-8 code point.
bool BeginsCodePoint(char c);
// Returns the columns that `text` takes: its UTF-8 code points, but those of codes for colors
// (core/color.h).
std::size_t TextWidth(std::string_view text);

// Returns `text` in lines of at most `width` columns, broken between words; all but the first begin
// with `indent` blanks, and of the first `taken` columns are used already. A word that is longer
// stays whole, and so do blanks within a line. There is no line end at the end.
std::string Wrapped(std::string_view text, std::size_t indent, std::size_t width = kTerminalWidth,
                    std::size_t taken = 0);

}  // namespace ada
