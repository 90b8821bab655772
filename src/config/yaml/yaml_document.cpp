// ParseYaml, the only file that knows yaml-cpp (0.7 and 0.8 alike: only its parser's events are
// used). Builds the tree from the parser's events: they arrive before the parser goes deeper, so
// the limits act while it runs, and anchors are seen as such.
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <map>
#include <optional>
#include <sstream>

#include "config/yaml/document.h"

namespace ada::config {
namespace {

// Lines of the text, to turn the parser's byte columns into characters.
// It also tells whether a quote is closed, which yaml-cpp does not report.
class Lines {
 public:
  explicit Lines(std::string_view text) : text_(text) {
    starts_.push_back(0);
    for (std::size_t i = 0; i < text.size(); ++i) {
      if (text[i] == '\n') starts_.push_back(i + 1);
    }
  }
  std::string_view Line(int line) const {  // from 0, without its end
    if (line < 0 || static_cast<std::size_t>(line) >= starts_.size()) return {};
    const auto index = static_cast<std::size_t>(line);
    const std::size_t end = index + 1 < starts_.size() ? starts_[index + 1] - 1 : text_.size();
    return text_.substr(starts_[index], end - starts_[index]);
  }
  // False where a quoted scalar, with or without an anchor before it, starts at `mark` and is never
  // closed: yaml-cpp takes the rest of the text for it.
  bool IsClosed(const YAML::Mark& mark) const {
    if (mark.line < 0 || static_cast<std::size_t>(mark.line) >= starts_.size()) return true;
    std::size_t at = starts_[static_cast<std::size_t>(mark.line)] +
                     static_cast<std::size_t>(std::max(mark.column, 0));
    if (at < text_.size() && text_[at] == '&') {
      at = text_.find_first_not_of(" \t\r\n", text_.find_first_of(" \t\r\n", at));
    }
    if (at >= text_.size() || (text_[at] != '"' && text_[at] != '\'')) return true;
    const char quote = text_[at];
    while (++at < text_.size()) {
      if (text_[at] == '\\' && quote == '"') {
        ++at;
      } else if (text_[at] == quote) {
        if (quote == '"' || at + 1 >= text_.size() || text_[at + 1] != quote) return true;
        ++at;
      }
    }
    return false;
  }
  // Goes on from the place asked for last: a long line is counted once, not once for each value.
  // Gives line and column from 1. Bytes that continue a character of UTF-8 are not counted.
  void Place(const YAML::Mark& mark, int& line, int& column) {
    const int bytes = std::max(mark.column, 0);
    if (mark.line != last_line_ || bytes < last_bytes_) {
      last_line_ = mark.line;
      last_bytes_ = 0;
      last_characters_ = 0;
    }
    const std::string_view text = Line(mark.line).substr(0, static_cast<std::size_t>(bytes));
    const auto skip = std::min(text.size(), static_cast<std::size_t>(last_bytes_));
    last_characters_ += static_cast<int>(
        std::count_if(text.begin() + static_cast<std::ptrdiff_t>(skip), text.end(),
                      [](char c) { return (static_cast<unsigned char>(c) & 0xC0u) != 0x80u; }));
    last_bytes_ = bytes;
    line = std::max(mark.line, 0) + 1;
    column = last_characters_ + 1;
  }

 private:
  std::string_view text_;
  std::vector<std::size_t> starts_;
  int last_line_ = -1, last_bytes_ = 0, last_characters_ = 0;
};

// Counts stop once they are above the limit, so a walk over a huge tree ends early.
std::size_t Count(const YamlNode& node, std::size_t limit) {
  std::size_t count = 1;
  for (const YamlNode& item : node.items) {
    if (count > limit) return count;
    count += Count(item, limit - count);
  }
  for (const Entry& entry : node.entries) {
    if (count > limit) return count;
    count += 1 + Count(entry.value, limit - count);
  }
  return count;
}

// Bytes of all keys and values.
std::size_t TextBytes(const YamlNode& node) {
  std::size_t bytes = node.text.size();
  for (const YamlNode& item : node.items) bytes += TextBytes(item);
  for (const Entry& entry : node.entries) bytes += entry.key.text.size() + TextBytes(entry.value);
  return bytes;
}

std::size_t Height(const YamlNode& node) {
  std::size_t below = 0;
  for (const YamlNode& item : node.items) below = std::max(below, Height(item));
  for (const Entry& entry : node.entries) below = std::max(below, Height(entry.value));
  const bool leaf = node.kind == YamlNode::Kind::kScalar || node.kind == YamlNode::Kind::kNull;
  return leaf ? 0 : below + 1;
}

// An event handler of yaml-cpp's parser. Values are built on a stack of open lists and maps; Finish
// hands each complete one to the list or map around it, a map's entries by turns as key and value.
// A limit that is passed throws ParseProblem out of the parser.
class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(Lines& lines, int source) : lines_(lines), source_(source) {}

  YamlNode root;

  void OnDocumentStart(const YAML::Mark& mark) override {
    // The parser also starts a document where it has lost its way; only "---" is really a second
    // one. The exception sends the other case to FindFault.
    if (++documents_ == 1) return;
    const bool announced = lines_.Line(mark.line).starts_with("---");
    if (announced) Fail(mark, "a second document starts here; expected one");
    throw YAML::ParserException(mark, "");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Finish(Make(YamlNode::Kind::kNull, mark), anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    // An anchor is stored when its value is complete: one not stored yet contains the alias itself.
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) Fail(mark, "this alias stands inside the value that it names");
    expanded_ += Count(found->second, kAliasLimit);
    if (expanded_ > kAliasLimit) {
      Fail(mark, "aliases expand to more than " + std::to_string(kAliasLimit) + " values");
    }
    expanded_bytes_ += TextBytes(found->second);
    if (expanded_bytes_ > kAliasBytes) Fail(mark, "aliases expand to more than 1 MB of text");
    if (stack_.size() + Height(found->second) > kNestingLimit) FailNesting(mark);
    Finish(found->second, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlNode node = Make(YamlNode::Kind::kScalar, mark);
    node.text = value;
    // yaml-cpp gives the tag "!" to scalars in quotes or block style and "?" to plain ones.
    node.quoted = tag == "!";
    if (node.quoted && !lines_.IsClosed(mark)) Fail(mark, "this quote is never closed");
    if (tag != "!" && tag != "?") FailTag(mark);
    Finish(std::move(node), anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kList, mark, tag, anchor);
  }
  void OnSequenceEnd() override { Close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    Open(YamlNode::Kind::kMap, mark, tag, anchor);
  }
  void OnMapEnd() override { Close(); }

  [[noreturn]] void Fail(const YAML::Mark& mark, const std::string& message) const {
    ParseProblem problem;
    lines_.Place(mark, problem.line, problem.column);
    problem.message = message;
    throw problem;
  }

 private:
  // A list or map that is not complete, with the key that waits for its value.
  struct Frame {
    YamlNode node;
    std::optional<YamlNode> key;
    YAML::anchor_t anchor;
    YAML::Mark mark;
  };

  [[noreturn]] void FailNesting(const YAML::Mark& mark) const {
    Fail(mark, "nested deeper than " + std::to_string(kNestingLimit) + " levels");
  }
  [[noreturn]] void FailTag(const YAML::Mark& mark) const {
    Fail(mark, "tags (!...) are not used here; write the plain value");
  }
  YamlNode Make(YamlNode::Kind kind, const YAML::Mark& mark) const {
    YamlNode node;
    node.kind = kind;
    node.source = source_;
    lines_.Place(mark, node.line, node.column);
    return node;
  }
  void Open(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag,
            YAML::anchor_t anchor) {
    if (stack_.size() >= kNestingLimit) FailNesting(mark);
    if (!tag.empty() && tag != "?" && tag != "!") FailTag(mark);
    stack_.push_back({Make(kind, mark), std::nullopt, anchor, mark});
  }
  void Close() {
    Frame frame = std::move(stack_.back());
    stack_.pop_back();
    Finish(std::move(frame.node), frame.anchor);
  }
  // Puts a complete value where it belongs.
  void Finish(YamlNode node, YAML::anchor_t anchor) {
    if (anchor != 0) Keep(node, anchor);
    if (stack_.empty()) {
      root = std::move(node);
      return;
    }
    Frame& parent = stack_.back();
    if (parent.node.kind == YamlNode::Kind::kList) {
      parent.node.items.push_back(std::move(node));
    } else if (!parent.key) {
      if (node.kind != YamlNode::Kind::kScalar) {
        throw ParseProblem{node.line, node.column, "a key must be a name"};
      }
      if (node.text.size() > kKeyLimit) {
        throw ParseProblem{node.line, node.column,
                           "a key of " + std::to_string(node.text.size()) +
                               " bytes; expected a name of at most " + std::to_string(kKeyLimit)};
      }
      parent.key = std::move(node);
    } else {
      if (node.kind == YamlNode::Kind::kNull) {  // its own place is that of whatever comes next
        node.line = parent.key->line;
        node.column = parent.key->column;
      }
      parent.node.entries.push_back({std::move(*parent.key), std::move(node)});
      parent.key.reset();
    }
  }

  // An anchor keeps a copy of its value, and anchors within anchors keep copies of copies.
  void Keep(const YamlNode& node, YAML::anchor_t anchor) {
    kept_ += Count(node, kAnchorLimit);
    if (kept_ > kAnchorLimit) {
      throw ParseProblem{node.line, node.column,
                         "anchors hold more than " + std::to_string(kAnchorLimit) + " values"};
    }
    anchors_[anchor] = node;
  }

  Lines& lines_;
  int source_;
  int documents_ = 0;
  std::vector<Frame> stack_;
  std::map<YAML::anchor_t, YamlNode> anchors_;
  std::size_t expanded_ = 0, kept_ = 0;  // nodes of aliases and of anchors
  std::size_t expanded_bytes_ = 0;       // texts of aliases
};

}  // namespace

// yaml-cpp would skip a byte order mark but count it in columns, so it is taken off here.
YamlNode ParseYaml(const std::string& text, int source) {
  const std::string problem = TextProblem(text);
  if (!problem.empty()) throw ParseProblem{0, 0, problem};
  const bool marked = text.starts_with("\xEF\xBB\xBF");  // a byte order mark
  const std::string plain = marked ? text.substr(3) : text;
  Lines lines(plain);
  TreeBuilder builder(lines, source);
  std::istringstream stream(plain);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (const YAML::Exception& error) {
    const std::optional<TextFault> fault = FindFault(plain, error.mark.line, error.mark.column);
    if (!fault) builder.Fail(error.mark, "not valid YAML here");
    YAML::Mark mark = error.mark;
    mark.line = fault->line, mark.column = fault->byte;
    builder.Fail(mark, fault->message);
  }
  return std::move(builder.root);
}

}  // namespace ada::config
