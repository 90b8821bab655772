// Tells foreign files by the marks at their beginnings, by their encoding, and by their zeros.
// Tokens are below 2^20, so that the upper half of one of 32 bits is 0 to 15 while its lower half
// has any value; of 64 bits the upper two halves are 0, too. In a text of uint16 what stands at
// even and at odd places is alike: that `n` large values all stand at even ones has the probability
// 2^-n.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>

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

using std::string_view_literals::operator""sv;

struct Mark {
  std::size_t at;
  std::string_view bytes;
  const char* what;
};

// The formats' own specifications name these bytes.
constexpr Mark kMarks[] = {
    {0, "\x1f\x8b\x08"sv, "is packed by gzip"},
    {0,
     "\xfd"
     "7zXZ\0"sv,
     "is packed by xz"},
    {0, "\x28\xb5\x2f\xfd"sv, "is packed by zstd"},
    {0, "\x04\x22\x4d\x18"sv, "is packed by lz4"},
    {0, "PK\x03\x04"sv, "is a ZIP archive"},
    {0, "PK\x05\x06"sv, "is a ZIP archive"},
    {0, "7z\xbc\xaf\x27\x1c"sv, "is a 7z archive"},
    {0, "Rar!\x1a\x07"sv, "is a RAR archive"},
    {257, "ustar"sv, "is a tar archive"},
    {5, "\0\0\0{\""sv, "is a file of safetensors"},  // after the length of its header
    {0, "GGUF"sv, "is a file of GGUF"},
    {0, "MMIDIDX\0\0"sv, "is Megatron's index of a .bin, which has the tokens"},
    {0, "\x80\x04\x95"sv, "is a pickle of Python"},
    {0, "version https://git-lfs"sv, "is a pointer of Git LFS (git lfs pull)"},
    {0, "\x93NUMPY"sv, "is an array of NumPy (.npy)"},
    {0, "\x89HDF\r\n\x1a\n"sv, "is a file of HDF5"},
    {0, "PAR1"sv, "is a file of Parquet"},
    {0, "ARROW1\0\0"sv, "is a file of Arrow"},
    {0, "SQLite format 3\0"sv, "is a database (SQLite)"},
    {0, "%PDF-"sv, "is a PDF"},
    {0, "\x89PNG\r\n\x1a\n"sv, "is a picture (PNG)"},
    {0, "\xff\xd8\xff"sv, "is a picture (JPEG)"},
    {0,
     "\x7f"
     "ELF"sv,
     "is a program"},
};

constexpr std::size_t kStretch = std::size_t{1} << 20;  // bytes that are looked at together

std::string_view TextOf(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A text may begin with BZh9: bzip2's first block, or its end, has a number of its own.
bool IsBzip2(std::string_view begin) {
  return begin.starts_with("BZh") && begin.size() >= 10 && begin[3] >= '1' && begin[3] <= '9' &&
         (begin.substr(4, 6) == "\x31\x41\x59\x26\x53\x59"sv ||
          begin.substr(4, 6) == "\x17\x72\x45\x38\x50\x90"sv);
}

// UTF-32's mark of little-endian order begins as UTF-16's does.
std::string EncodingOf(std::string_view begin) {
  if (begin.starts_with("\xff\xfe\0\0"sv) || begin.starts_with("\0\0\xfe\xff"sv)) return "UTF-32";
  if (begin.starts_with("\xff\xfe"sv) || begin.starts_with("\xfe\xff"sv)) return "UTF-16";
  return "";
}

std::string Grouped(std::uint64_t number) {
  std::string text = std::to_string(number);
  for (std::size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, ",");
  return text;
}

// How many bytes the first character of `text` has; 0: they are none of UTF-8. A character that the
// end of `text` cuts is whole.
std::size_t CharacterAt(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  if (first < 0x80) return 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 1; i < std::min(length, text.size()); ++i)
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 0;
  return std::min(length, text.size());
}

// Bytes of no character, of a stretch that may begin within one.
std::uint64_t OutsideUtf8(std::string_view text) {
  std::size_t at = 0;
  while (at < std::min<std::size_t>(text.size(), 3) && (text[at] & 0xC0) == 0x80) ++at;
  std::uint64_t outside = 0;
  while (at < text.size()) {
    const std::size_t length = CharacterAt(text.substr(at));
    outside += length == 0;
    at += std::max<std::size_t>(length, 1);
  }
  return outside;
}

// Stretches, the first and the last among them, spread over the text where it is long. The zeros of
// Western languages in UTF-16 stand at every second place; a text in UTF-8 may have some bytes that
// were spoilt.
std::string StrangeBytesOf(std::span<const std::byte> text, std::size_t most) {
  constexpr std::uint64_t kSpoilt = 16, kShare = 1000;
  std::size_t stretches = 1, length = text.size();
  if (text.size() > most) {
    length = std::min(kStretch, most);
    stretches = std::max<std::size_t>(most / length, 1);
  }
  std::uint64_t zeros = 0, even = 0, outside = 0;
  for (std::size_t i = 0; i < stretches; ++i) {
    const std::size_t begin = stretches == 1 ? 0 : (text.size() - length) / (stretches - 1) * i;
    const auto bytes = text.subspan(begin, length);
    zeros += static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), std::byte{0}));
    for (std::size_t k = begin % 2; k < bytes.size(); k += 2) even += bytes[k] == std::byte{0};
    outside += OutsideUtf8(TextOf(bytes));
  }
  const std::uint64_t all = stretches * length;
  const auto told = [&](std::uint64_t count) {
    return Grouped(count) + " of " + (text.size() > most ? "the " : "") + Grouped(all) + " bytes " +
           (text.size() > most ? "looked at " : "");
  };
  if (zeros > 0) {
    const std::uint64_t most_of_one = std::max(even, zeros - even);
    const bool alternate = zeros >= all / 4 && most_of_one >= zeros - zeros / 20;
    return told(zeros) + (alternate ? "are 0, every second one: is it UTF-16?"
                                    : "are 0: is it a text, and whole?");
  }
  if (outside < std::max(kSpoilt, all / kShare)) return "";
  return told(outside) + "are none of UTF-8: is it Latin-1, or no text?";
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
// is not, unless the bytes were exchanged; no tokens are multiples of 256 alone, unless these were
// below 256.
std::string OrderFault(std::span<const std::byte> numbers) {
  constexpr std::int64_t kNumbers = 1024;
  constexpr std::uint16_t kTop = 240;
  std::array<std::array<std::int64_t, 16>, 2> counts{};  // by place and upper four bits
  std::int64_t all = 0, low = 0, high = 0, any_low = 0, any_high = 0;
  ForQuads(numbers, [&](const std::uint16_t(&halves)[4]) {
    for (std::size_t i = 0; i < 4; ++i) {
      ++counts[i % 2][halves[i] >> 12], ++all;
      low += (halves[i] & 0xFF) >= kTop, high += (halves[i] >> 8) >= kTop;
      any_low += (halves[i] & 0xFF) != 0, any_high += (halves[i] >> 8) != 0;
    }
  });
  if (all < kNumbers) return "";
  std::int64_t apart = 0;
  for (std::size_t bits = 0; bits < 16; ++bits)
    apart += std::abs(counts[0][bits] - counts[1][bits]);
  if (3 * apart > all)
    return "what stands at even and at odd places differs, as of floats, or of wider numbers";
  const bool exchanged = (low == 0 && high >= kEnough) || (any_low == 0 && any_high >= kEnough);
  return exchanged ? "looks big-endian" : "";
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

std::string ForeignKind(std::span<const std::byte> begin) {
  const std::string_view text = TextOf(begin);
  for (const Mark& mark : kMarks)
    if (text.size() >= mark.at && text.substr(mark.at).starts_with(mark.bytes)) return mark.what;
  return IsBzip2(text) ? "is packed by bzip2" : "";
}

std::string ZerosAtEnd(std::span<const std::byte> numbers, std::size_t width) {
  constexpr std::size_t kLeast = 512, kLookedAt = std::size_t{1} << 23;  // numbers
  const std::size_t all = numbers.size() / width;
  const auto end = numbers.last(std::min(all, kLookedAt) * width);
  const auto last =
      std::find_if(end.rbegin(), end.rend(), [](std::byte b) { return b != std::byte{0}; });
  const std::size_t zeros = static_cast<std::size_t>(last - end.rbegin()) / width;
  if (zeros < kLeast) return "";
  return "the last " + Grouped(zeros) + " of " + Grouped(all) + " tokens are 0: is it whole?";
}

// The bytes of 64 numbers of 16 bits, drawn at random, can all be printed once in 10^54 times;
// tokens below 256 have a byte that is 0. After the mark of UTF-16 letters are below 0x3000, which
// so many tokens of a vocabulary that has the mark as well are not.
bool LooksLikeText(std::span<const std::byte> numbers) {
  constexpr std::size_t kLeast = 128, kMost = 4096;  // bytes
  const std::string_view text = TextOf(numbers.first(std::min(numbers.size(), kMost)));
  if (text.size() < kLeast) return false;
  if (EncodingOf(text) == "UTF-16") {
    const std::size_t upper = text[0] == '\xff' ? 1 : 0;
    for (std::size_t i = 2; i + 1 < text.size(); i += 2)
      if (static_cast<unsigned char>(text[i + upper]) >= 0x30) return false;
    return true;
  }
  return std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t';
  });
}

std::string FaultOfText(std::span<const std::byte> text, std::size_t most) {
  if (const std::string kind = ForeignKind(text); !kind.empty())
    return kind + ", not a text: its bytes are learned as they are";
  if (const std::string encoding = EncodingOf(TextOf(text)); !encoding.empty())
    return "begins with the mark of " + encoding + ", whose characters have " +
           (encoding == "UTF-16" ? "2" : "4") +
           " bytes each: bits per byte are of those; expected UTF-8";
  return StrangeBytesOf(text, most);
}

}  // namespace ada::data
