// One YAML scalar to one value, strictly: decimal numbers only, `true` and `false` only, quotes
// make text. Each function returns why it refuses, or nothing. A ValueSchema says the same of a
// value for programs: each kind of key makes its JSON Schema of the very range and words by which
// it reads.
#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

using Names = std::vector<std::string>;
struct Section;
// Makes a table only where it is asked for: reading a file does not need it.
using MakeSection = std::function<std::shared_ptr<Section>()>;

// One schema of a value; a key may have several (a word or a map).
// It is data and not JSON, because the tables are built in every reading, and only
// schema/json_schema.cpp turns schemas into a document. A member belongs to the kinds that its
// comment names.
struct ValueSchema {
  enum class Kind { kInteger, kNumber, kSwitch, kWord, kText, kMap, kTextMap, kList };
  Kind kind = Kind::kText;
  Range range = AnyNumber();       // kInteger, kNumber
  Names words;                     // kWord
  std::string pattern;             // kText: the regular expression that fits it; empty: any text
  bool plain = true;               // kText: may look like a number or a boolean
  MakeSection section;             // kMap: its table
  std::string marker;              // kMap: this schema is meant where the map has this key
  std::vector<ValueSchema> items;  // kList: the schemas of an item
  std::size_t least = 0;           // kList: items at least and at most
  std::size_t most = std::numeric_limits<std::size_t>::max();
  bool distinct = false;  // kList: no item twice
};

// Within 64 bits.
// The reader holds a long long, so a limit beyond it becomes an open bound that a validator can
// check.
inline ValueSchema IntegerSchema(Range range) {
  constexpr double kBeyond = 0x1p63;
  if (range.high >= kBeyond) {
    range.high = kBeyond;
    range.high_included = false;
  }
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kInteger;
  schema.range = std::move(range);
  return schema;
}

inline ValueSchema NumberSchema(const Range& range) {
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kNumber;
  schema.range = range;
  return schema;
}

inline ValueSchema SwitchSchema() {
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kSwitch;
  return schema;
}

inline ValueSchema WordSchema(Names words) {
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kWord;
  schema.words = std::move(words);
  return schema;
}

// `plain`: also accepts what YAML reads, by its letters, as a number or a boolean.
inline ValueSchema TextSchema(std::string pattern, bool plain = true) {
  ValueSchema schema;
  schema.plain = plain;
  schema.pattern = std::move(pattern);
  return schema;
}

// `marker` distinguishes two kinds of maps that are allowed in one place: an if-then of the schema
// tests for this key, so that a validator's messages are about the right one.
inline ValueSchema MapSchema(MakeSection section, std::string marker = "") {
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kMap;
  schema.section = std::move(section);
  schema.marker = std::move(marker);
  return schema;
}

// Any keys, with a text each.
inline ValueSchema TextMapSchema() {
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kTextMap;
  return schema;
}

inline ValueSchema ListSchema(std::vector<ValueSchema> items, std::size_t least = 0) {
  ValueSchema schema;
  schema.kind = ValueSchema::Kind::kList;
  schema.items = std::move(items);
  schema.least = least;
  return schema;
}

}  // namespace ada::config
