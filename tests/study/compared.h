// Parses the output of `compare` for tests.
#pragma once
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include "study/commands.h"
#include "study/written_run.h"

namespace ada::testing {

inline std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What compare prints; every line fits a terminal and is plain.
inline std::vector<std::string> Compared(const WrittenRun& a, const WrittenRun& b) {
  std::ostringstream out;
  study::Compare(a.path(), b.path(), out);
  std::vector<std::string> lines = Lines(out.str());
  for (const std::string& line : lines) {
    CAPTURE(line);
    CHECK(line.size() <= 80);
    CHECK(std::all_of(line.begin(), line.end(), [](char c) { return c >= ' ' && c <= '~'; }));
    CHECK((line.empty() || line.back() != ' '));
  }
  return lines;
}

inline bool Has(const std::vector<std::string>& lines, const std::string& line) {
  return std::find(lines.begin(), lines.end(), line) != lines.end();
}

// The lines after `title` up to the next empty one.
inline std::vector<std::string> Section(const std::vector<std::string>& lines,
                                        const std::string& title) {
  auto begin = std::find_if(lines.begin(), lines.end(),
                            [&](const std::string& line) { return line.starts_with(title); });
  REQUIRE(begin != lines.end());
  const auto end = std::find(++begin, lines.end(), "");
  return {begin, end};
}

// The words of a line.
inline std::vector<std::string> Words(const std::string& line) {
  std::vector<std::string> words;
  std::istringstream stream(line);
  for (std::string word; stream >> word;) words.push_back(word);
  return words;
}

}  // namespace ada::testing
