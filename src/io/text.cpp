// Edit distance, glob matching and number texts; independent of the locale.
#include "io/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <unordered_set>

namespace ada {
namespace {

unsigned ByteOf(std::string_view text, std::size_t at) {
  return at < text.size() ? static_cast<unsigned char>(text[at]) : 0u;
}

// Optimal string alignment: the restricted Damerau-Levenshtein distance, O(|a| |b|).
std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before_last[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

// The code points of UTF-8; a byte that is none of it stands for itself, above all of them.
std::u32string Characters(std::string_view text) {
  constexpr char32_t kAbove = 0x110000;
  std::u32string characters;
  for (std::size_t i = 0; i < text.size();) {
    const auto first = static_cast<unsigned char>(text[i]);
    const std::size_t length = CharacterLength(text, i);
    char32_t character = length == 0   ? kAbove + first
                         : length == 1 ? first
                                       : first & 0x7f >> length;
    for (std::size_t k = 1; k < length; ++k)
      character = character << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3f);
    characters += character;
    i += length == 0 ? 1 : length;
  }
  return characters;
}

// One element of a glob: `*`, or something that matches a single character.
struct GlobPiece {
  enum Kind { kStar, kAny, kCharacter, kSet } kind;
  std::u32string_view text;  // kCharacter: that one; kSet: between the brackets
};

bool InSet(std::u32string_view set, char32_t character) {
  const bool negated = set.front() == '!';
  if (negated) set.remove_prefix(1);
  for (std::size_t i = 0; i < set.size(); ++i) {
    const char32_t low = set[i];
    char32_t high = low;
    if (i + 2 < set.size() && set[i + 1] == '-') {
      high = set[i + 2];
      i += 2;
    }
    if (low <= character && character <= high) return !negated;
  }
  return negated;
}

std::vector<GlobPiece> ParseGlob(std::u32string_view pattern) {
  std::vector<GlobPiece> pieces;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const std::u32string_view here = pattern.substr(i, 1);
    if (here == U"*") {
      pieces.push_back({GlobPiece::kStar, here});
    } else if (here == U"?") {
      pieces.push_back({GlobPiece::kAny, here});
    } else if (here == U"[") {
      // The first character of a set belongs to it, even where it is a bracket.
      const std::size_t first = i + 1 + (pattern.substr(i + 1, 1) == U"!");
      const std::size_t close = pattern.find(']', first + 1);
      if (close == std::u32string_view::npos) {
        pieces.push_back({GlobPiece::kCharacter, here});
        continue;
      }
      pieces.push_back({GlobPiece::kSet, pattern.substr(i + 1, close - i - 1)});
      i = close;
    } else {
      pieces.push_back({GlobPiece::kCharacter, here});
    }
  }
  return pieces;
}

bool MatchesOne(const GlobPiece& piece, char32_t character) {
  switch (piece.kind) {
    case GlobPiece::kAny:
      return true;
    case GlobPiece::kCharacter:
      return piece.text.front() == character;
    case GlobPiece::kSet:
      return InSet(piece.text, character);
    case GlobPiece::kStar:
      break;
  }
  return false;
}

std::string NotFinite(double value) {
  if (std::isnan(value)) return "nan";
  return value > 0 ? "inf" : "-inf";
}

template <class T>
std::string Shortest(T value) {
  if (!std::isfinite(value)) return NotFinite(value);
  std::array<char, 64> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

}  // namespace

std::size_t CharacterLength(std::string_view text, std::size_t at) {
  if (at >= text.size()) return 0;
  const unsigned first = ByteOf(text, at);
  if (first < 0x80) return 1;
  const auto tail = [&](std::size_t count) {
    for (std::size_t i = 1; i <= count; ++i) {
      if ((ByteOf(text, at + i) & 0xC0u) != 0x80u) return false;
    }
    return true;
  };
  const unsigned second = ByteOf(text, at + 1);
  if (first >= 0xC2 && first <= 0xDF && tail(1)) return 2;
  if (first >= 0xE0 && first <= 0xEF && tail(2)) {
    const bool overlong = first == 0xE0 && second < 0xA0;
    const bool surrogate = first == 0xED && second >= 0xA0;
    return overlong || surrogate ? 0 : 3;
  }
  if (first >= 0xF0 && first <= 0xF4 && tail(3)) {
    const bool outside = (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
    return outside ? 0 : 4;
  }
  return 0;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) c = LowerCase(c);
  return lower;
}

std::string NearestName(std::string_view name, const std::vector<std::string>& known) {
  const std::string wanted = LowerCase(name);
  std::string nearest;
  std::size_t fewest = 0;
  for (const std::string& candidate : known) {
    const std::size_t longer = std::max(wanted.size(), candidate.size());
    const std::size_t shorter = std::min(wanted.size(), candidate.size());
    const std::size_t limit = std::max<std::size_t>(1, longer / 3);
    if (longer - shorter > limit) continue;  // spares the table of a giant name
    const std::size_t edits = EditDistance(wanted, LowerCase(candidate));
    if (edits > limit || edits >= longer) continue;
    if (nearest.empty() || edits < fewest) {
      nearest = candidate;
      fewest = edits;
    }
  }
  return nearest;
}

std::string Nearest(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
}

std::string FirstTwice(const std::vector<std::string>& names) {
  std::unordered_set<std::string_view> seen;
  for (const std::string& name : names)
    if (!seen.insert(name).second) return name;
  return "";
}

bool Contains(const std::vector<std::string>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool GlobMatch(std::string_view pattern, std::string_view name) {
  const std::u32string characters = Characters(pattern), text = Characters(name);
  const std::vector<GlobPiece> pieces = ParseGlob(characters);
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::size_t piece = 0, at = 0;
  std::size_t star = kNone, star_end = 0;  // only the last star ever needs to take more
  while (at < text.size()) {
    if (piece < pieces.size() && pieces[piece].kind == GlobPiece::kStar) {
      star = piece++;
      star_end = at;
    } else if (piece < pieces.size() && MatchesOne(pieces[piece], text[at])) {
      ++piece;
      ++at;
    } else if (star != kNone) {
      piece = star + 1;
      at = ++star_end;
    } else {
      return false;
    }
  }
  while (piece < pieces.size() && pieces[piece].kind == GlobPiece::kStar) ++piece;
  return piece == pieces.size();
}

std::string ShortestText(double value) { return Shortest(value); }
std::string ShortestText(float value) { return Shortest(value); }

std::string NineDigits(double value) {
  if (!std::isfinite(value)) return NotFinite(value);
  std::array<char, 64> buffer;
  // to_chars ignores the locale, unlike printf.
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::general, 9);
  return {buffer.data(), result.ptr};
}

std::string Counted(std::int64_t count, std::string_view what) {
  return std::to_string(count) + " " + std::string(what) + (count == 1 ? "" : "s");
}

std::string DimsText(const std::vector<std::int64_t>& dims) {
  std::string text = "[";
  for (const std::int64_t dim : dims) text += (text.size() > 1 ? ", " : "") + std::to_string(dim);
  return text + "]";
}

std::string FirstNames(const std::vector<std::string>& names, std::size_t most) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), most); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += " and " + std::to_string(names.size() - most) + " more";
  return text;
}

std::string ShellWord(const std::string& word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=,@%+";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string HumanBytes(std::uint64_t bytes) {
  constexpr std::array<const char*, 7> kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1023.95 && unit + 1 < kUnits.size()) {  // 1023.95 would print as 1024.0
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> buffer;
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::fixed, unit == 0 ? 0 : 1);
  return std::string(buffer.data(), result.ptr) + " " + kUnits[unit];
}

}  // namespace ada
