// What a file of numbers without a header says of their width, by where its zeros stand.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace ada::data {

// What the halves of 16 bits are as numbers of 32 and 64 bits, of tokens, leave them.
struct NumberWidth {
  int bytes = 2;           // 2: nothing speaks against it; 4 or 8: it looks like these
  std::uint32_t high = 0;  // of 4 or 8: the largest upper half of the lower 32 bits
};

// Looks at some hundred thousand numbers, spread over `numbers`.
NumberWidth WidthOfNumbers(std::span<const std::byte> numbers);

// "as uint16 every second token would be 0 to 1: it looks like uint32", of numbers that look wider
// than the `read_as` bytes; "as uint16 (data.element) every second token is ..." where the user
// says so.
std::string WidthText(const NumberWidth& width, int read_as, bool user_says);

}  // namespace ada::data
