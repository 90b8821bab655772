// Tokens are below 2^20, so that the upper half of one of 32 bits is 0 to 15 while its lower half
// has any value; of 64 bits the upper two halves are 0, too. In a text of uint16 what stands at
// even and at odd places is alike: that `n` large values all stand at even ones has the probability
// 2^-n.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>

#include "data/tokens/token_files.h"

namespace ada::data {
namespace {

constexpr std::uint16_t kNegative = 0xFFFF;  // the upper halves of -1, -100 ...
constexpr std::uint16_t kHigh = 16;          // above the upper half of a token
constexpr std::uint16_t kLow = 256;          // lower halves from here on tell the two apart
constexpr std::int64_t kEnough = 16;         // values that speak for a width
constexpr std::int64_t kAgainst = 8;  // how many of them one that speaks against it outweighs
constexpr std::size_t kQuadsOfStretch = 1 << 14, kStretches = 4;

// What speaks for one width and against it.
struct Votes {
  std::int64_t of = 0, against = 0;
  bool enough() const { return of >= kEnough + kAgainst * against; }
};

// Numbers of 64 bits, of 32 bits below 2^16, and of 32 bits below 2^20.
struct Poll {
  Votes eight, four, four_high;
  std::uint32_t high = 0;

  void Pair(std::uint16_t low, std::uint16_t high_half) {
    const bool negative = high_half == kNegative && low >= kNegative - 0xFF;
    if (negative) return;
    four.of += low != 0, four.against += high_half != 0;
    four_high.of += low >= kLow, four_high.against += high_half >= kHigh;
    if (high_half < kHigh) high = std::max<std::uint32_t>(high, high_half);
  }
  void Quad(const std::uint16_t (&halves)[4]) {
    Pair(halves[0], halves[1]);
    Pair(halves[2], halves[3]);
    const bool positive = halves[2] == 0 && halves[3] == 0;
    const bool negative =
        halves[1] == kNegative && halves[2] == kNegative && halves[3] == kNegative;
    eight.of += positive && halves[0] != 0, eight.against += !positive && !negative;
  }
};

// Calls `take` with four numbers of 16 bits after the other, of stretches spread over `numbers`.
template <class Take>
void ForQuads(std::span<const std::byte> numbers, const Take& take) {
  const std::size_t quads = numbers.size() / 8;
  const std::size_t looked_at = std::min(quads, kQuadsOfStretch);
  for (std::size_t stretch = 0; stretch < (quads > looked_at ? kStretches : 1); ++stretch) {
    const std::size_t begin = (quads - looked_at) * stretch / (kStretches - 1);
    for (std::size_t i = begin; i < begin + looked_at; ++i) {
      std::uint16_t halves[4];
      std::memcpy(halves, numbers.data() + 8 * i, sizeof halves);
      take(halves);
    }
  }
}

}  // namespace

NumberWidth WidthOfNumbers(std::span<const std::byte> numbers) {
  Poll poll;
  ForQuads(numbers, [&](const std::uint16_t(&halves)[4]) { poll.Quad(halves); });
  const bool low = poll.four.enough(), high = poll.four_high.enough();
  if (!low && !high) return {};
  return {poll.eight.enough() ? 8 : 4, low ? 0 : poll.high};
}

// The upper byte of a token of a vocabulary below 240 * 256 is below 240, and the lower one of some
// is not, unless the bytes were exchanged.
std::string OrderFault(std::span<const std::byte> numbers) {
  constexpr std::int64_t kNumbers = 1024;
  constexpr std::uint16_t kTop = 240;
  std::array<std::array<std::int64_t, 16>, 2> counts{};  // by place and upper four bits
  std::int64_t all = 0, low = 0, high = 0;
  ForQuads(numbers, [&](const std::uint16_t(&halves)[4]) {
    for (std::size_t i = 0; i < 4; ++i) {
      ++counts[i % 2][halves[i] >> 12], ++all;
      low += (halves[i] & 0xFF) >= kTop, high += (halves[i] >> 8) >= kTop;
    }
  });
  if (all < kNumbers) return "";
  std::int64_t apart = 0;
  for (std::size_t bits = 0; bits < 16; ++bits)
    apart += std::abs(counts[0][bits] - counts[1][bits]);
  if (3 * apart > all)
    return "what stands at even and at odd places differs, as of floats, or of wider numbers";
  return low == 0 && high >= kEnough ? "looks big-endian" : "";
}

std::string WidthText(const NumberWidth& width, int read_as, bool user_says) {
  const std::string name = read_as == 2 ? "uint16" : "uint32";
  const std::string looks = width.bytes == 8 ? "int64" : "uint32";
  const bool three_of_four = width.bytes == 8 && read_as == 2 && width.high == 0;
  const std::string values =
      width.high == 0 || read_as == 4 ? "0" : "0 to " + std::to_string(width.high);
  const std::string which = three_of_four ? "three of four tokens" : "every second token";
  const std::string verb = !user_says ? " would be " : three_of_four ? " are " : " is ";
  std::string text = "as " + name + (user_says ? " (data.element) " : " ") + which + verb + values;
  if (width.bytes == 8 && read_as == 2 && !user_says)
    text += ", as uint32 every second " + std::string(three_of_four ? "one" : "one would be 0");
  return text + ": it looks like " + looks;
}

}  // namespace ada::data
