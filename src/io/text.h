// Small text helpers: letter case, nearest names for messages, globs, and numbers as text. No
// parsing of YAML or CSV here.
#pragma once
#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

namespace ada {

// Letters in lower case whatever the locale is: only ASCII letters change.
inline char LowerCase(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
std::string LowerCase(std::string_view text);

// Returns the bytes of the valid character at `text[at]` (RFC 3629: no overlong forms, no
// surrogates); 0 where there is none.
std::size_t CharacterLength(std::string_view text, std::size_t at);

// The member of `known` with the fewest edits to `name` (insertion, deletion, substitution,
// exchange of neighbors; letter case is ignored), the first of equal ones. "" if all need more
// edits than a third of the longer name (but one is always allowed).
std::string NearestName(std::string_view name, const std::vector<std::string>& known);

// "; did you mean 'NAME'?", the end of a message; "" where no known name is near.
std::string Nearest(const std::string& name, const std::vector<std::string>& known);

// Whether `pattern` matches all of `text`: `*` any characters, `?` one, `[abc]`, `[a-z]` and `[!a]`
// one of (not of) a set. A `[` without `]` stands for itself. Time is O(pattern * text).
bool GlobMatch(std::string_view pattern, std::string_view text);

// The first name that occurs twice; "": there is none.
std::string FirstTwice(const std::vector<std::string>& names);

bool Contains(const std::vector<std::string>& names, std::string_view name);

// Formats like printf, in at most 95 characters.
template <class... Values>
std::string Formatted(const char* format, Values... values) {
  char text[96];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

// The shortest decimal text that reads back to the same value; inf, -inf, nan in words.
std::string ShortestText(double value);
std::string ShortestText(float value);

// Nine significant digits without trailing zeros (printf's %.9g); inf, -inf, nan in words.
std::string NineDigits(double value);

// "1 step", "2 steps".
std::string Counted(std::int64_t count, std::string_view what);

// "[64, 3, 7, 7]".
std::string DimsText(const std::vector<std::int64_t>& dims);

// "a, b, c and 4 more": the first `most` names.
std::string FirstNames(const std::vector<std::string>& names, std::size_t most);

// `word` as it has to be typed on a command line: in quotes where a shell reads it otherwise.
std::string ShellWord(const std::string& word);

// "512 B", "1.5 KiB", "2.3 GiB": at most one digit after the point.
std::string HumanBytes(std::uint64_t bytes);

}  // namespace ada
