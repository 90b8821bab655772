// UTF-8 text, and how text that comes from files is shown to people: a tensor's or a layer's name
// may hold what a terminal obeys.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>

namespace ada {

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

}  // namespace ada
