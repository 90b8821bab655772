// Numbers are classified by their spelling before they are converted: what YAML readers disagree
// about (010, 0x10, 1_000, .inf) is refused with the reason.
#include "config/keys/scalars.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "io/text.h"

namespace ada::config {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// What a scalar's letters are, before anything is converted. kInteger and kDecimal are values; the
// three in between are numbers to some YAML reader and are refused with a hint.
enum class Spelling { kInteger, kDecimal, kLeadingZero, kOtherBase, kNotFinite, kNoNumber };

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

std::size_t SkipDigits(std::string_view text, std::size_t at) {
  while (at < text.size() && IsDigit(text[at])) ++at;
  return at;
}

// Goes through sign, digits, point, digits, exponent. The whole text must fit: "12px" is no number.
Spelling Classify(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  const std::string lower = LowerCase(text);
  for (const char* word : {".inf", ".nan", "inf", "nan", "infinity"}) {
    if (lower == word) return Spelling::kNotFinite;
  }
  if (text.size() > 2 && text[0] == '0' && std::string_view("xob").find(lower[1]) != lower.npos) {
    return Spelling::kOtherBase;
  }
  const std::size_t whole = SkipDigits(text, 0);
  // A leading zero is refused only at the end: "0123abc" is no number at all, and 0.5 has one
  // digit.
  const bool leading_zero = whole > 1 && text[0] == '0';
  std::size_t at = whole;
  std::size_t digits = whole;
  if (at < text.size() && text[at] == '.') {
    const std::size_t end = SkipDigits(text, at + 1);
    digits += end - at - 1;
    at = end;
  }
  if (digits == 0) return Spelling::kNoNumber;
  if (at < text.size() && lower[at] == 'e') {
    ++at;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) ++at;
    const std::size_t end = SkipDigits(text, at);
    if (end == at) return Spelling::kNoNumber;
    at = end;
  }
  if (at != text.size()) return Spelling::kNoNumber;
  if (leading_zero) return Spelling::kLeadingZero;
  return at == whole ? Spelling::kInteger : Spelling::kDecimal;
}

// Common to both kinds of number; `spelling` is set where the scalar may be one.
std::string RefuseNumber(const YamlNode& node, const std::string& what, Spelling& spelling) {
  if (node.kind != YamlNode::Kind::kScalar) return Expected(what, node);
  spelling = Classify(node.text);
  // Quotes make any value a text; the hint says so only if the value would be valid without
  // quotes.
  if (node.quoted) return Expected(what, node) + QuotedHint(node);
  switch (spelling) {
    case Spelling::kLeadingZero:
      return Expected(what, node) + " (leading zeros mean octal to some readers)";
    case Spelling::kOtherBase:
      return Expected(what, node) + " (write it in decimal)";
    case Spelling::kNotFinite:
      return Expected(what, node) + ", which is not finite";
    case Spelling::kNoNumber:
      return Expected(what, node);
    default:
      return "";
  }
}

std::string WithRange(const std::string& what, const Range& range) {
  const std::string text = range.Text();
  return text.empty() ? what : what + ", " + text;
}

// std::from_chars takes a minus sign but no plus.
std::string_view WithoutPlus(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  return text;
}

}  // namespace

bool Range::Contains(double value) const {
  return (low_included ? value >= low : value > low) &&
         (high_included ? value <= high : value < high);
}

std::string Range::Text() const {
  if (!text.empty()) return text;
  const auto shown = [](double end) {  // limits are short: whole ones without exponent
    const bool whole = std::fabs(end) < 1e15 && end == std::floor(end);
    return whole ? std::to_string(static_cast<long long>(end)) : NumberText(end);
  };
  const std::string from = shown(low);
  const std::string to = shown(high);
  if (low == -kInfinity) return "";
  if (high == kInfinity) return low_included ? from + " or more" : "above " + from;
  if (!low_included && !high_included) return "between " + from + " and " + to + ", both excluded";
  if (!high_included) return from + " or more and below " + to;
  return from + " to " + to;
}

Range AnyNumber() { return {-kInfinity, kInfinity, false, false, ""}; }
Range AtLeast(double low) { return {low, kInfinity, true, false, ""}; }
Range Above(double low) { return {low, kInfinity, false, false, ""}; }
Range FromTo(double low, double high) { return {low, high, true, true, ""}; }
Range Inside(double low, double high) { return {low, high, false, false, ""}; }
Range FromBelow(double low, double high) { return {low, high, true, false, ""}; }

bool IsWord(const YamlNode& node, std::string_view word) {
  return node.kind == YamlNode::Kind::kScalar && node.text == word;
}

std::string QuotedHint(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || !node.quoted) return "";
  const Spelling spelling = Classify(node.text);
  const bool number = spelling == Spelling::kInteger || spelling == Spelling::kDecimal;
  const bool is_value = number || node.text == "true" || node.text == "false";
  return is_value ? " in quotes, which is text" : "";
}

std::string ReadInteger(const YamlNode& node, const Range& range, long long& value) {
  const std::string what = WithRange("a whole number", range);
  Spelling spelling = Spelling::kNoNumber;
  std::string refusal = RefuseNumber(node, what, spelling);
  if (!refusal.empty()) return refusal;
  if (spelling == Spelling::kDecimal) {
    return Expected(what, node) + " (write it without point or exponent)";
  }
  const std::string_view text = WithoutPlus(node.text);
  long long read = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), read);
  // Beyond 64 bits is treated as beyond the range; the comparison as a double is exact for the
  // limits that keys have.
  // The range of the key may be wider than what is read.
  const bool below = text.starts_with('-');
  if (result.ec == std::errc::result_out_of_range && range.Contains(below ? -0x1p63 : 0x1p63)) {
    return Expected(what, node) + ", which is beyond the limit of whole numbers, " +
           (below ? "-2^63" : "2^63 - 1");
  }
  if (result.ec != std::errc() || !range.Contains(static_cast<double>(read))) {
    return Expected(what, node);
  }
  value = read;
  return "";
}

std::string ReadNumber(const YamlNode& node, const Range& range, double& value) {
  const std::string what = WithRange("a number", range);
  Spelling spelling = Spelling::kNoNumber;
  std::string refusal = RefuseNumber(node, what, spelling);
  if (!refusal.empty()) return refusal;
  const std::string_view text = WithoutPlus(node.text);
  double read = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), read);
  if (result.ec != std::errc()) {
    return Expected(what, node) + ", which is beyond what a double holds";
  }
  if (!range.Contains(read)) return Expected(what, node);
  value = read;
  return "";
}

std::string ReadSwitch(const YamlNode& node, bool& value) {
  const bool plain = node.kind == YamlNode::Kind::kScalar && !node.quoted;
  if (!plain || (node.text != "true" && node.text != "false")) {
    return Expected("true or false", node) + QuotedHint(node);
  }
  value = node.text == "true";
  return "";
}

std::string ReadText(const YamlNode& node, std::string& value) {
  if (node.kind != YamlNode::Kind::kScalar) return Expected("text", node);
  if (node.text.empty()) return "expected text; got empty quotes";
  value = node.text;
  return "";
}

// YAML 1.1 readers take yes, no, on, off, y and n for booleans, 2020-01-01 for a date, 1:30 for 90
// and 1_000 for a number, so they get quotes too, although this reader would take them for text.
YamlNode TextNode(const std::string& text) {
  YamlNode node = Scalar(text);
  const std::string lower = LowerCase(text);
  for (const char* word : {"true", "false", "yes", "no", "on", "off", "y", "n"}) {
    node.quoted = node.quoted || lower == word;
  }
  node.quoted = node.quoted || Classify(text) != Spelling::kNoNumber;
  const std::size_t first = text.find_first_not_of("+-.");
  const bool like_number = first < text.size() && text[first] >= '0' && text[first] <= '9';
  node.quoted = node.quoted || text.starts_with(':') ||
                (like_number && text.find_first_of(":_-") != std::string::npos);
  return node;
}

// YAML 1.1 wants a point before an exponent: 1e-05 is text to PyYAML, 1.0e-05 is a number.
std::string NumberText(double value) {
  char buffer[40];
  const auto result = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string text(buffer, result.ptr);
  const std::size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    text.insert(exponent, ".0");
  }
  return text;
}

}  // namespace ada::config
