// What a value may be, for programs: a JSON Schema is made of it. Each kind of key declares its
// schemas from the very range and words by which it reads.
#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "config/keys/scalars.h"

namespace ada::config {

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
