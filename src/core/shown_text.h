// Text as people see it: UTF-8 of which nothing can command a terminal, its width and its lines,
// colors, and paths to type.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "core/text.h"

namespace ada {

// UTF-8. Text that comes from files may hold what a terminal obeys: a tensor's or a layer's name.

// Returns the bytes of the valid character at `text[at]` (RFC 3629: no overlong forms, no
// surrogates); 0 where there is none.
std::size_t CharacterLength(std::string_view text, std::size_t at);

// Returns `text` with everything visible: control characters, those that turn the direction of
// writing, and bytes that are no UTF-8 stand there as \x1b or \u202e.
std::string Visible(std::string_view text);
// Does the same, but line ends stay: for messages of several lines.
std::string VisibleLines(std::string_view text);

// Returns `text` as UTF-8, which JSON wants: bytes that are none stand there as \xff, all else is
// as it was.
std::string ValidUtf8(std::string_view text);

// Returns a piece of a file as it may stand in a message: in quotes, visible, and of what is longer
// than 80 bytes the beginning.
std::string Shown(std::string_view text);

// Widths and lines: a code point takes one column.

// Columns that every terminal has.
inline constexpr std::size_t kTerminalWidth = 80;

// Returns whether `c` is the first byte of a UTF-8 code point.
bool BeginsCodePoint(char c);
// Returns the columns that `text` takes: its UTF-8 code points, but those of codes for colors.
std::size_t TextWidth(std::string_view text);

// Returns `text` in lines of at most `width` columns, broken between words; all but the first begin
// with `indent` blanks, and of the first `taken` columns are used already. A word that is longer
// stays whole, and so do blanks within a line. There is no line end at the end.
std::string Wrapped(std::string_view text, std::size_t indent, std::size_t width = kTerminalWidth,
                    std::size_t taken = 0);

// Colors: whether a stream gets them, and text that has them.

enum class ColorChoice { kAuto, kAlways, kNever };

// Sets what --color says, for all streams; kAuto until then. Not for several threads.
void SetColorChoice(ColorChoice choice);
// Says whether the terminal at `descriptor` can move its cursor: it is one, and no dumb one.
bool CanMoveCursor(int descriptor);
// Says whether text for `descriptor` is colored. Under kAuto: on such a terminal, unless the
// environment has a NO_COLOR that is not empty (no-color.org).
bool HasColor(int descriptor);

enum class Color { kPlain, kBold, kDim, kRed, kGreen, kYellow };

// Returns `text`, which must be visible (Visible), in this color; as it is where `on` is false.
std::string Colored(bool on, Color color, std::string_view text);

// Returns `path`, in a command that a message tells the reader to type, as a word of a command
// line, which is not read as an option: "./-x" of "-x".
inline std::string ShellPath(const std::string& path) {
  return ShellWord(path.starts_with('-') ? "./" + path : path);
}

}  // namespace ada
