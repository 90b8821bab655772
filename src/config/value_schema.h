// What a value may be, for programs: a JSON Schema is made of it. Each kind of key declares its
// forms from the very range and words by which it reads.
#pragma once
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "config/scalars.h"

namespace ada::config {

using Names = std::vector<std::string>;
struct Section;
// Makes a table only where it is asked for: reading a file does not need it.
using MakeSection = std::function<std::shared_ptr<Section>()>;

// One form of a value; a key may have several (a word or a map).
struct ValueSchema {
  enum class Kind { kInteger, kNumber, kSwitch, kWord, kText, kMap, kList };
  Kind kind = Kind::kText;
  Range range = AnyNumber();       // kInteger, kNumber
  Names words;                     // kWord
  std::string pattern;             // kText: the regular expression that fits it; empty: any text
  bool plain = true;               // kText: may look like a number or a boolean
  MakeSection section;             // kMap: its table
  std::string marker;              // kMap: this form is meant where the map has this key
  std::vector<ValueSchema> items;  // kList: the forms of an item
  std::size_t least = 0;           // kList: items at least and at most
  std::size_t most = std::numeric_limits<std::size_t>::max();
  bool distinct = false;  // kList: no item twice
};

ValueSchema IntegerSchema(Range range);  // within 64 bits
ValueSchema NumberSchema(const Range& range);
ValueSchema SwitchSchema();
ValueSchema WordSchema(Names words);
// `plain`: also what YAML takes for a number or a boolean, by its letters.
ValueSchema TextSchema(std::string pattern, bool plain = true);
ValueSchema MapSchema(MakeSection section, std::string marker = "");
ValueSchema ListSchema(std::vector<ValueSchema> items, std::size_t least = 0);

}  // namespace ada::config
