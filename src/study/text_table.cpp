// Widths are counted in code points of UTF-8 (io/shown_text.h), and text that a terminal must
// not see (control characters, bytes that are no UTF-8) is shown as what it is.
#include "study/text_table.h"

#include <algorithm>
#include <cmath>
#include <ostream>

#include "io/shown_text.h"
#include "io/text.h"

namespace ada::study {
namespace {

constexpr std::size_t kIndent = 2, kGap = 2, kNarrowest = 8;

}  // namespace

std::string CutText(std::string_view text, std::size_t width) {
  std::string shown = Visible(text);
  if (TextWidth(shown) <= width) return shown;
  const std::size_t dots = std::min<std::size_t>(2, width);
  std::size_t end = 0, columns = 0;
  // The cut is at the end of a character, after so many columns.
  while (end < shown.size() && (!BeginsCodePoint(shown[end]) || columns++ < width - dots)) ++end;
  return shown.substr(0, end) + std::string(dots, '.');
}

std::string PaddedText(std::string_view text, std::size_t width, bool right) {
  const std::string shown = CutText(text, width);
  const std::string blanks(width - TextWidth(shown), ' ');
  return right ? blanks + shown : shown + blanks;
}

// The shortest text that reads back to the scale; powers of two are short.
std::string ScaleText(double scale, std::size_t width, int digits) {
  if (std::isnan(scale)) return "-";
  std::string exact = ShortestText(scale);
  return exact.size() <= width ? exact : Formatted("%.*g", digits, scale);
}

std::string ShareText(double share) { return std::isnan(share) ? "-" : Formatted("%.4f", share); }

std::string PctText(double pct) {
  if (std::isnan(pct)) return "-";
  if (pct == 0) return "0";
  if (pct < 0.0005) return "<0.001";
  return Formatted("%.3f", pct);
}

std::string PercentText(double pct) { return Formatted("%.3g %%", pct); }

std::string DidYouMean(const std::string& name, const std::vector<std::string>& known) {
  const std::string nearest = NearestName(name, known);
  return nearest.empty() ? "" : "; did you mean " + nearest + "?";
}

// Widths first, over all rows; then the excess over the line is taken from the first column; then
// each row is padded, and blanks at its end are cut off.
void TextTable::Print(std::ostream& out, std::size_t width) const {
  std::vector<std::size_t> widths(rows_.front().size(), 0);
  for (const auto& row : rows_) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      widths[i] = std::max(widths[i], TextWidth(row[i]));
    }
  }
  std::size_t total = kIndent + kGap * (widths.size() - 1);
  for (const std::size_t w : widths) total += w;
  const std::size_t excess = total > width ? total - width : 0;
  // Only the first column gives way, down to a few columns: it holds names, the others numbers.
  widths[0] = std::max(std::min(kNarrowest, widths[0]), widths[0] - std::min(excess, widths[0]));
  for (const auto& row : rows_) {
    std::string line;
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const bool right = i >= left_ && !(last_left_ && i + 1 == widths.size());
      line += std::string(i == 0 ? kIndent : kGap, ' ') + PaddedText(row[i], widths[i], right);
    }
    out << line.substr(0, line.find_last_not_of(' ') + 1) << '\n';
  }
}

// A word that is longer than a line is cut. The last word has no comma.
void PrintList(const std::vector<std::string>& words, std::size_t indent, std::ostream& out,
               std::size_t width) {
  const std::string blanks(indent, ' ');
  std::string line = blanks;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string word =
        CutText(words[i], width - indent - 1) + (i + 1 < words.size() ? "," : "");
    if (line.size() > indent && TextWidth(line) + 1 + TextWidth(word) > width) {
      out << line << '\n';
      line = blanks;
    }
    line += (line.size() > indent ? " " : "") + word;
  }
  out << line << '\n';
}

void PrintWrapped(std::string_view text, std::size_t indent, std::ostream& out, std::size_t width) {
  out << Wrapped(text, indent, width) << '\n';
}

}  // namespace ada::study
