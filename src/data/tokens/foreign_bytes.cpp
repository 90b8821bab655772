// Tells foreign files by the marks at their beginnings, by their encoding, and by their zeros.
#include <algorithm>
#include <string_view>

#include "data/tokens/token_files.h"

namespace ada::data {
namespace {

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
    {5, "\0\0\0{\""sv, "is a file of safetensors"},  // behind the length of its header
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
// tokens below 256 have a byte that is 0.
bool LooksLikeText(std::span<const std::byte> numbers) {
  constexpr std::size_t kLeast = 128, kMost = 4096;  // bytes
  const std::string_view text = TextOf(numbers.first(std::min(numbers.size(), kMost)));
  return text.size() >= kLeast && std::all_of(text.begin(), text.end(), [](char c) {
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
