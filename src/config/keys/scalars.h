// One YAML scalar to one value, strictly: decimal numbers only, `true` and `false` only, quotes
// make text. Each function returns why it refuses, or nothing.
#pragma once
#include <string>
#include <string_view>

#include "config/yaml/node.h"

namespace ada::config {

// An interval of numbers; infinite ends mean no limit on that side.
// Both the check of a value and the words of messages, help and schema come of it. A NaN is in no
// range, as no comparison with it holds.
struct Range {
  double low, high;
  bool low_included = true, high_included = true;
  std::string text;  // replaces the derived one, e.g. "2^-126 to 2^127"

  bool Contains(double value) const;
  std::string Text() const;  // "1 or more", "above 0", "0 to 1"; empty: any
};
Range AnyNumber();
Range AtLeast(double low);
Range Above(double low);
Range FromTo(double low, double high);
Range Inside(double low, double high);     // both ends excluded
Range FromBelow(double low, double high);  // low included, high excluded

// Whether the value is this word, with or without quotes, because JSON has words only in quotes.
// Keys that accept a number or a word call this before they try to read a number.
bool IsWord(const YamlNode& node, std::string_view word);
// What a message about a number or a boolean in quotes ends with; of anything else nothing.
std::string QuotedHint(const YamlNode& node);
// On failure `value` is unchanged. A decimal with a point or an exponent is not an integer, even if
// it has an integer value: 1e3 is refused with a hint.
std::string ReadInteger(const YamlNode& node, const Range& range, long long& value);
// Integers are accepted. Numbers that a double cannot hold, or that would become 0, are refused.
std::string ReadNumber(const YamlNode& node, const Range& range, double& value);
std::string ReadSwitch(const YamlNode& node, bool& value);
// Numbers and booleans without quotes are texts by their letters; empty quotes are refused.
std::string ReadText(const YamlNode& node, std::string& value);

// A scalar that every YAML reader takes for text: quoted where it looks like a number or a boolean.
YamlNode TextNode(const std::string& text);
// Shortest text that reads back to the same double; exponents as YAML 1.1 wants them too (1.0e-05).
std::string NumberText(double value);

}  // namespace ada::config
