// Text for terminals: widths in columns of a terminal (one a code point), and tables with aligned
// columns.
#pragma once
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace ada::study {

// Columns that every terminal has.
inline constexpr std::size_t kTerminalWidth = 80;

// Returns the columns that `text` takes: its UTF-8 code points.
std::size_t TextWidth(std::string_view text);
// Returns `text` in at most `width` columns, all of it visible (core/utf8.h); where it is cut it
// ends in "..".
std::string CutText(std::string_view text, std::size_t width);
// Does the same and adds blanks up to `width`, before the text where `right`.
std::string PaddedText(std::string_view text, std::size_t width, bool right = false);

// Returns a scale exactly where that takes at most `width` characters, else with `digits`
// significant digits; "-" for NaN.
std::string ScaleText(double scale, std::size_t width, int digits);

// Returns a share with four digits behind the point; "-" for NaN.
std::string ShareText(double share);

// Returns a percentage with three digits behind the point; "-" for NaN.
std::string PctText(double pct);

// Rows of fields below a line of titles: the first column (or all, by `left`) to the left, others
// to the right, each as wide as its longest field.
class TextTable {
 public:
  static constexpr std::size_t kWidth = 100;
  // The first `left` columns are aligned to the left.
  explicit TextTable(std::vector<std::string> titles, std::size_t left = 1)
      : rows_{std::move(titles)}, left_(left) {}
  void LastToTheLeft() { last_left_ = true; }  // as well: it holds words
  void Row(std::vector<std::string> fields) { rows_.push_back(std::move(fields)); }
  // Each line begins with two blanks; the first column is cut where lines would be longer than
  // `width`.
  void Print(std::ostream& out, std::size_t width = kWidth) const;

 private:
  std::vector<std::vector<std::string>> rows_;
  std::size_t left_;
  bool last_left_ = false;
};

// Prints `words` with ", " between, in lines of at most `width` columns that begin with `indent`
// blanks.
void PrintList(const std::vector<std::string>& words, std::size_t indent, std::ostream& out,
               std::size_t width = TextTable::kWidth);

// Prints `text` in lines of at most `width` columns, broken between words; all but the first begin
// with `indent` blanks. A word that is longer stays whole, and so do blanks within a line.
void PrintWrapped(std::string_view text, std::size_t indent, std::ostream& out,
                  std::size_t width = kTerminalWidth);

}  // namespace ada::study
