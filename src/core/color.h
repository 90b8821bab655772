// Color on terminals: whether a stream gets it, and text that has it.
#pragma once
#include <string>
#include <string_view>

namespace ada {

enum class ColorChoice { kAuto, kAlways, kNever };

// Sets what --color says, for all streams; kAuto until then. Not for several threads.
void SetColorChoice(ColorChoice choice);
// Says whether the terminal at `descriptor` can move its cursor: it is one, and no dumb one.
bool CanMoveCursor(int descriptor);
// Says whether text for `descriptor` is colored. Under kAuto: on such a terminal, unless the
// environment has a NO_COLOR that is not empty (no-color.org).
bool HasColor(int descriptor);

enum class Color { kPlain, kBold, kDim, kRed, kGreen, kYellow };

// Returns `text`, which must be visible (core/utf8.h), in this color; as it is where `on` is
// false.
std::string Colored(bool on, Color color, std::string_view text);

}  // namespace ada
