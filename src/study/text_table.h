// Text for terminals: fields in so many columns (io/shown_text.h), and tables with aligned
// ones.
#pragma once
#include <cstddef>
#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

#include "io/shown_text.h"

namespace ada::study {

// Returns `text` in at most `width` columns, all of it visible (io/shown_text.h); where it is cut
// it ends in "..".
std::string CutText(std::string_view text, std::size_t width);
// Does the same and adds blanks up to `width`, before the text where `right`.
std::string PaddedText(std::string_view text, std::size_t width, bool right = false);

// Returns a scale exactly where that takes at most `width` characters, else with `digits`
// significant digits; "-" for NaN.
std::string ScaleText(double scale, std::size_t width, int digits);

// Returns a share with four digits after the point; "-" for NaN.
std::string ShareText(double share);

// Returns a percentage with three digits after the point; "-" for NaN.
// Shares that are not 0 are never shown as 0.
std::string PctText(double pct);

// Returns it with three significant digits and its sign: "12.5 %".
std::string PercentText(double pct);

// "; did you mean NAME?", of the known name that is next to this one; empty where none is near.
std::string DidYouMean(const std::string& name, const std::vector<std::string>& known);

// Rows of fields below a line of titles: the first column (or all, by `left`) to the left, others
// to the right, each as wide as its longest field.
// Rows must have as many fields as there are titles. Widths are columns of the terminal, not bytes.
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

// Prints what Wrapped returns, and a line end.
void PrintWrapped(std::string_view text, std::size_t indent, std::ostream& out,
                  std::size_t width = kTerminalWidth);

}  // namespace ada::study
