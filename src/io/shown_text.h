// Text as people see it: UTF-8 without control sequences for the terminal, its width and its lines,
// colors, and paths to be typed.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

#include "io/text.h"

namespace ada {

// Returns `text`, which comes from a file (names of tensors, of layers) and may contain terminal
// controls, with everything visible: control characters, characters that change the writing
// direction, and bytes that are not UTF-8 are written as \x1b or \u202e.
std::string Visible(std::string_view text);
// Does the same, but line ends stay: for messages of several lines.
std::string VisibleLines(std::string_view text);

// Returns `text` as UTF-8, which JSON requires: bytes that are not UTF-8 are written as \xff, all
// else is unchanged.
std::string ValidUtf8(std::string_view text);

// Returns a piece of a file for use in a message: in quotes, visible, and cut after 80
// bytes.
std::string Shown(std::string_view text);

// A width that every terminal has, in columns.
inline constexpr std::size_t kTerminalWidth = 80;

// Returns whether `c` is the first byte of a UTF-8 code point.
bool BeginsCodePoint(char c);
// Returns the width of `text` in columns: its code points, without color escape sequences. Each is
// assumed to be one column wide.
std::size_t TextWidth(std::string_view text);

// Returns `text` in lines of at most `width` columns, broken between words; all lines but the first
// begin with `indent` blanks, and `taken` columns of the first one are already used. A longer word
// is not broken, and blanks within a line are kept. The last line has no line end.
std::string Wrapped(std::string_view text, std::size_t indent, std::size_t width = kTerminalWidth,
                    std::size_t taken = 0);

// What --color asks for.
enum class ColorChoice { kAuto, kAlways, kNever };

// Sets what --color requests, for all streams; initially kAuto. Not thread-safe.
void SetColorChoice(ColorChoice choice);
// Whether `descriptor` is a terminal that can move its cursor (not a dumb one).
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
