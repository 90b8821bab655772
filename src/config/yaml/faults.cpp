// yaml-cpp gives one place and a message in terms of its own states. A scan of the text that knows
// only brackets, quotes, comments and indentation finds the usual slips near that place. It is no
// parser: it runs after a refusal, and a wrong guess costs nothing but the wording of a message.
#include <algorithm>
#include <vector>

#include "config/yaml/document.h"

namespace ada::config {
namespace {

// A bracket that is open, with its place from 0.
struct Bracket {
  char opening;
  int line, byte;
};

// A line of block style (none that begins within brackets or quotes), without its comment.
struct BlockLine {
  int number;
  int indent;  // blanks before its first character
  std::string_view text;
};

std::string QuotedCharacter(char c) { return {'\'', c, '\''}; }

char ClosingOf(char opening) { return opening == '{' ? '}' : ']'; }

std::string PlaceOf(const Bracket& bracket) {
  return "line " + std::to_string(bracket.line + 1) + ", column " +
         std::to_string(bracket.byte + 1);
}

// Walks through the text once, as far as brackets, quotes and comments are concerned.
// One walk gives the first fault of brackets and the lines in block style, which the searches for
// tabs, indentation and colons look at. Quotes and brackets may go on over several lines.
class Scan {
 public:
  explicit Scan(std::string_view text) {
    for (int number = 0; !fault_ && !text.empty(); ++number) {
      const std::size_t end = std::min(text.find('\n'), text.size());
      AddLine(text.substr(0, end), number);
      text.remove_prefix(std::min(end + 1, text.size()));
    }
    if (!fault_ && !open_.empty()) {
      const Bracket& last = open_.back();
      fault_ = {last.line, last.byte,
                "this " + QuotedCharacter(last.opening) + " is never closed by a " +
                    QuotedCharacter(ClosingOf(last.opening))};
    }
  }

  // What is wrong with the brackets; null: nothing.
  const std::optional<TextFault>& fault() const { return fault_; }
  const std::vector<BlockLine>& blocks() const { return blocks_; }

 private:
  void AddLine(std::string_view line, int number) {
    const bool block = open_.empty() && quote_ == 0;
    const std::size_t end = ScanLine(line, number);
    const std::string_view text = line.substr(0, end);
    const std::size_t first = text.find_first_not_of(" \t\r");
    if (block && first != std::string_view::npos)
      blocks_.push_back({number, static_cast<int>(first), text});
  }

  // Returns where the comment starts.
  // A '#' starts a comment only at the start of a line or after a blank, and a quote or bracket
  // means something only where a value may start: in `it's` and `a[0]` they are letters.
  std::size_t ScanLine(std::string_view line, int number) {
    bool value = true;  // whether a value may start here: quotes and brackets mean something
    for (std::size_t i = 0; i < line.size() && !fault_; ++i) {
      const char c = line[i];
      // Within double quotes a backslash takes the next character with it; within single ones two
      // of them stand for one.
      if (quote_ != 0) {
        const bool doubled = quote_ == '\'' && line.substr(i, 2) == "''";
        if (doubled || (c == '\\' && quote_ == '"'))
          ++i;
        else if (c == quote_)
          quote_ = 0;
        continue;
      }
      if (c == '#' && (i == 0 || line[i - 1] == ' ' || line[i - 1] == '\t')) return i;
      if (c == ' ' || c == '\t' || c == '\r') continue;
      if (value && (c == '"' || c == '\'')) quote_ = c;
      const bool counts = value || !open_.empty();  // within brackets they always do
      if (counts && (c == '{' || c == '[')) {
        open_.push_back({c, number, static_cast<int>(i)});
      } else if (!open_.empty() && (c == '}' || c == ']')) {
        Close(c, number, static_cast<int>(i));
      }
      // A colon or a dash announces a value only before a blank or at the end of the line.
      const bool last = i + 1 == line.size() || line[i + 1] == ' ';
      value = c == '{' || c == '[' || c == ',' || ((c == ':' || c == '-') && last);
    }
    return line.size();
  }

  void Close(char closing, int number, int byte) {
    const Bracket top = open_.back();
    open_.pop_back();
    if (ClosingOf(top.opening) == closing) return;
    fault_ = {number, byte,
              QuotedCharacter(closing) + " stands where " +
                  QuotedCharacter(ClosingOf(top.opening)) + " must close the " +
                  QuotedCharacter(top.opening) + " of " + PlaceOf(top)};
  }

  std::vector<Bracket> open_;
  char quote_ = 0;
  std::optional<TextFault> fault_;
  std::vector<BlockLine> blocks_;
};

// The first tab in the indentation of a block line up to `line`.
std::optional<TextFault> FindTab(const std::vector<BlockLine>& blocks, int line) {
  for (const BlockLine& block : blocks) {
    const std::size_t tab = block.text.substr(0, block.indent).find('\t');
    if (block.number <= line && tab != std::string_view::npos)
      return TextFault{block.number, static_cast<int>(tab),
                       "a tab in the indentation; YAML wants blanks"};
  }
  return std::nullopt;
}

// Where "key: value" or "key:" has its colon; npos: it is neither.
std::size_t ColonOf(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (text[i] == ':' && (i + 1 == text.size() || text[i + 1] == ' ' || text[i + 1] == '\r'))
      return i;
  return std::string_view::npos;
}

std::string Blanks(int count) {
  return std::to_string(count) + (count == 1 ? " blank" : " blanks");
}

// A line that ends a block without standing at the depth of an outer one, or that is deeper than
// one above it that has its value already.
std::optional<TextFault> FindIndent(const std::vector<BlockLine>& blocks, int line) {
  std::vector<int> depths;
  const BlockLine* above = nullptr;
  for (const BlockLine& block : blocks) {
    if (block.number > line) break;
    bool ended = false;
    // `depths` are the indentations that are open, from the outermost. A line that closes some of
    // them must land on one that is left.
    while (!depths.empty() && depths.back() > block.indent) depths.pop_back(), ended = true;
    if (ended && (depths.empty() || depths.back() < block.indent)) {
      const std::string outer = depths.empty() ? "" : " or " + std::to_string(depths.back());
      return TextFault{block.number, block.indent,
                       "indented by " + Blanks(block.indent) + ", the lines above by " +
                           Blanks(above->indent) + outer + "; lines of one map stand at one depth"};
    }
    const std::size_t colon = above ? ColonOf(above->text) : std::string_view::npos;
    // A deeper line after "key: value" is allowed only as the rest of a plain text over several
    // lines, which has no colon of its own.
    const bool has_value =
        colon != std::string_view::npos &&
        above->text.find_first_not_of(" \r", colon + 1) != std::string_view::npos;
    if (above && block.indent > above->indent && has_value && above->text[above->indent] != '-' &&
        ColonOf(block.text) != std::string_view::npos)
      return TextFault{block.number, block.indent,
                       "indented deeper than the line above, which has its value already"};
    if (depths.empty() || depths.back() < block.indent) depths.push_back(block.indent);
    above = &block;
  }
  return std::nullopt;
}

// Where a text of one key has its value, a second colon. Within brackets a comma is missing.
std::optional<TextFault> FindColon(const std::vector<BlockLine>& blocks, std::string_view row,
                                   bool flow, int line, int byte) {
  // The parser gives up at the second colon of a line, or, where a line is no "key: value", only at
  // the colon of the next line; the line above is the one to look at then.
  if (ColonOf(row) < static_cast<std::size_t>(byte))
    return TextFault{line, byte,
                     flow ? "a second ':' before the next ','; between two entries stands a comma"
                          : "a second ': ' in this line; a value that holds one needs quotes, and "
                            "each key a line of its own"};
  const auto at = std::find_if(blocks.begin(), blocks.end(),
                               [&](const BlockLine& block) { return block.number == line; });
  if (at == blocks.end() || at == blocks.begin()) return std::nullopt;
  const BlockLine& above = *std::prev(at);
  if (ColonOf(above.text) != std::string_view::npos) return std::nullopt;
  const bool tight = above.text.find(':') != std::string_view::npos;
  return TextFault{above.number, above.indent,
                   tight ? "expected a blank after the colon of this line"
                         : "expected `key: value` in this line"};
}

// Slips that the character at the place of the refusal gives away.
std::optional<TextFault> FindAt(const std::vector<BlockLine>& blocks, std::string_view row,
                                int line, int byte) {
  const auto at = static_cast<std::size_t>(std::max(byte, 0));
  const char c = at < row.size() ? row[at] : '\0';
  // A line that is no block line began within brackets.
  const bool flow = row.substr(0, at).find_first_of("{[") != std::string_view::npos ||
                    std::none_of(blocks.begin(), blocks.end(),
                                 [&](const BlockLine& block) { return block.number == line; });
  if (c == '*')
    return TextFault{line, byte,
                     "a value that begins with '*' is an alias, and nothing above has this name; "
                     "put a glob into quotes"};
  if (c == '@' || c == '`' || c == '%')
    return TextFault{line, byte,
                     "a value that begins with " + QuotedCharacter(c) + " needs quotes"};
  if (c == '}' || c == ']')
    return TextFault{line, byte, "this " + QuotedCharacter(c) + " closes nothing that is open"};
  if (c == ':') return FindColon(blocks, row, flow, line, byte);
  if (!flow || c == '\0') return std::nullopt;
  return TextFault{line, byte, "not valid YAML here; a ',' or a ':' may be missing before it"};
}

}  // namespace

// Tabs and brackets come first: they derail everything after them, so the place where the parser
// gave up says little. The indentation comes last, since it is the vaguest guess.
std::optional<TextFault> FindFault(std::string_view text, int line, int byte) {
  const Scan scan(text);
  std::optional<TextFault> fault = FindTab(scan.blocks(), line);
  if (!fault) fault = scan.fault();
  if (fault) return fault;
  std::string_view row = text;
  for (int i = 0; i < line && !row.empty(); ++i)
    row.remove_prefix(std::min(row.find('\n'), row.size() - 1) + 1);
  row = row.substr(0, row.find('\n'));
  fault = FindAt(scan.blocks(), row, line, byte);
  return fault ? fault : FindIndent(scan.blocks(), line);
}

}  // namespace ada::config
