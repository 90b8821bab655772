// Random faults in files, the same for the same seed: fields that cannot be, rows twice, swapped or
// cut, bytes inserted, deleted and changed.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace ada::testing {

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // From 0 to `below` - 1.
  std::size_t Pick(std::size_t below) { return static_cast<std::size_t>(random_() % below); }
  template <class List>
  const auto& OneOf(const List& list) {
    return list[Pick(std::size(list))];
  }

  // `text` with one to four faults.
  std::string Mutated(std::string text) {
    for (std::size_t faults = 1 + Pick(4); faults > 0; --faults) AddFault(text);
    return text;
  }

 private:
  static constexpr std::array<std::string_view, 42> kFields = {"",
                                                               "0",
                                                               "-0",
                                                               "1",
                                                               "-1",
                                                               "2",
                                                               "281",
                                                               "-280",
                                                               "280",
                                                               "1000000000",
                                                               "1000000000000",
                                                               "9223372036854775807",
                                                               "-9223372036854775808",
                                                               "99999999999999999999",
                                                               "1e18",
                                                               "1e308",
                                                               "-1e308",
                                                               "1e-320",
                                                               "inf",
                                                               "-inf",
                                                               "nan",
                                                               "0x10",
                                                               "1_0",
                                                               " 1",
                                                               "zero",
                                                               "dx",
                                                               "dw",
                                                               "loss",
                                                               "fp8_e4m3",
                                                               "{exponent: 8, mantissa: 23}",
                                                               "{exponent: 99, mantissa: 99}",
                                                               "branch",
                                                               "skip",
                                                               "\"",
                                                               "\"\"",
                                                               "\"a\nb\"",
                                                               "\"a\"b",
                                                               "\x1b[2J",
                                                               "\xC2\x9B",
                                                               "\xE2\x80\xAE",
                                                               "\xff",
                                                               "fc"};
  static constexpr std::string_view kBytes = "\",\n\r#-.0e9{}[]:\xff\x80\x1b\0";

  void AddFault(std::string& text) {
    const std::size_t at = Pick(text.size() + 1);
    switch (Pick(10)) {
      case 0:
        text.insert(at, 1 + Pick(3), Byte());
        return;
      case 1:
        text.erase(at, 1 + Pick(3));
        return;
      case 2:
        if (at < text.size()) text[at] = Byte();
        return;
      case 3:
        text.resize(at);
        return;
      case 4:
        text.insert(0, 1, Byte());
        return;
      case 5:
      case 6:
        MoveLine(text);
        return;
      default:
        ReplaceFields(text);
    }
  }

  char Byte() { return Pick(8) == 0 ? '\0' : OneOf(kBytes); }

  static std::vector<std::string> Split(const std::string& text, char by) {
    std::vector<std::string> pieces(1);
    for (const char c : text) {
      if (c == by)
        pieces.emplace_back();
      else
        pieces.back() += c;
    }
    return pieces;
  }
  static std::string Join(const std::vector<std::string>& pieces, char by) {
    std::string text;
    for (std::size_t i = 0; i < pieces.size(); ++i) text += (i > 0 ? by + pieces[i] : pieces[i]);
    return text;
  }

  void MoveLine(std::string& text) {
    std::vector<std::string> lines = Split(text, '\n');
    std::string &a = lines[Pick(lines.size())], &b = lines[Pick(lines.size())];
    if (Pick(2) == 0)
      a = b;
    else
      std::swap(a, b);
    text = Join(lines, '\n');
  }

  // One column, in one row or from some row on.
  void ReplaceFields(std::string& text) {
    std::vector<std::string> lines = Split(text, '\n');
    const std::size_t column = Pick(Split(lines[0], ',').size()), from = Pick(lines.size());
    const std::size_t rows = Pick(3) == 0 ? lines.size() : 1;
    const std::string field(OneOf(kFields));
    for (std::size_t i = from; i < lines.size() && i - from < rows; ++i) {
      std::vector<std::string> fields = Split(lines[i], ',');
      if (column < fields.size()) fields[column] = field;
      lines[i] = Join(fields, ',');
    }
    text = Join(lines, '\n');
  }

  std::mt19937_64 random_;
};

}  // namespace ada::testing
