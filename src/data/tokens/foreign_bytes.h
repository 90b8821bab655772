// Files that are given as a text, or as numbers alone, and whose bytes say that they are something
// else: packed, of another program, in another encoding, or with a hole.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ada::data {

// "is packed by gzip", "is a picture (PNG)"; "" for bytes of no known kind. `begin` are the first
// of a file, some 300 are enough.
std::string ForeignKind(std::span<const std::byte> begin);

// Whether bytes that should be numbers are letters: all of the first some thousand can be printed.
bool LooksLikeText(std::span<const std::byte> numbers);

// What is wrong with `text` as a text; "" for nothing: what ForeignKind knows, the mark of UTF-16
// or UTF-32, or bytes that are 0. At most about `most` bytes of it are looked at, spread over it.
std::string FaultOfText(std::span<const std::byte> text, std::size_t most);

}  // namespace ada::data
