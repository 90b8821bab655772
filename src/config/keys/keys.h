// What a configuration may hold, as tables: one Key declares name, type, range, meaning and the
// field behind it, and serves context, writing, checking and documentation alike. No YAML here.
// A table is made for one struct and used at once: Load builds RootSection over an empty Config,
// reads the tree by it, and drops it. Writing, the JSON Schema and the help build tables of their
// own. So closures may hold references to fields, and nothing may keep a table longer than its
// struct.
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "config/keys/scalars.h"
#include "config/yaml/node.h"
#include "config/yaml/problems.h"

namespace ada::config {

// The names of an enumeration's values in the order in which messages list them.
template <class E>
using EnumNames = std::vector<std::pair<std::string, E>>;

// Where a value is being read: the dotted path of its key, the key's own node (or the value's), and
// the choice that the section around it makes ("gpt2" where `zoo: gpt2` stands).
// It is made anew at each level: `path` grows by one name, `key` becomes the entry's key, and
// `problems` is that of the whole reading.
struct ReadContext {
  Problems& problems;
  std::string path;
  const YamlNode& key;
  std::string choice = {};
};

struct Section;

// One key of a section. The functions below (Integer, Choice, Nested ...) make it with `read`,
// `write` and `schemas` that fit together; the members with a verb (For, Required ...) then refine
// it and may be chained. ReadSection calls `read` only where the section's choice knows the key.
struct Key {
  // `type` and `meaning` are for readers (help, schema, documentation); nothing is decided by them
  // but whether a type begins with "list", which puts [] into the paths of its entries.
  std::string name, type, meaning;
  std::string range;                 // in words; empty: none
  std::string default_text;          // empty: what `write` gives for default structs
  Names only_for;                    // choices of the section that have it; empty: all
  Names only_for_second;             // the same for its second discriminator
  Names required_for;                // choices that need it
  bool required = false;             // always
  std::vector<ValueSchema> schemas;  // what a value may be: one of these
  std::shared_ptr<Section> section;  // of a nested section, or of a list's entries
  std::function<void(const YamlNode&, const ReadContext&)> read;
  std::function<std::optional<YamlNode>()> write;  // nothing: the key is unset
  std::function<bool()> unused;                    // true: it is not written; null: it always is
  // Why the rest of its section has no use for it, "" where it has: --set, which makes it so, drops
  // it. Null: it always has a use.
  std::function<std::string(const YamlNode& map)> idle;

  // Limits the key to some choices of the section's discriminator; others refuse it by name.
  Key& For(Names choices);
  // The same for the second discriminator (`preset` below `policy`).
  Key& ForSecond(Names second_choices);
  Key& Required();
  Key& RequiredFor(Names choices);
  // The words that help and schema show as the default, where the value that `write` would give for
  // a default struct says too little or nothing. They do not set any field.
  Key& Default(std::string words);
  Key& Fits(std::string pattern);  // the expression of a text
  // It is written only where `given` says so: what a run does not use stays out of its config.yaml.
  Key& WrittenIf(std::function<bool()> given);

  // Whether this map is one value, such as a format, and not a map of the keys of `section`: it
  // replaces what was there as a word does, and no key is set within it.
  bool TakesWhole(const YamlNode& map) const;
};

// Keys of a map that depend on each other, and the message if they do not fit together. Only
// whether a key is written matters, not its value.
struct KeyRule {
  Names keys;  // empty: no rule
  std::string refusal;
};

// The choice of a section that lacks a key: "policy fixed"; `known` null: no such key at all.
struct Mismatch {
  std::string discriminator, choice;
  const Names* known = nullptr;  // the choices that do
};

// A map of keys. `discriminator` names the key whose value decides which of the others apply.
// The functions in sections/ make one for each section of the YAML. What varies between sections is
// data here, so reading, writing, overriding (overrides.cpp) and the schema share one
// procedure.
struct Section {
  std::string path;  // "scaling"; empty: the whole document
  // The order is that in which values are written, listed and documented. They are read in the
  // order in which the file has them.
  std::vector<Key> keys;
  std::string discriminator;  // empty: none
  Names choices;
  std::string default_choice;  // empty: the discriminator must be given
  // default_choice and what keys are required for are what set_defaults of the section around this
  // one makes of them.
  bool starts_by_outer = false;
  // A list that acts as a choice with its own name. Choices may have a number of this name.
  std::string alternative;
  std::optional<std::string> chosen;  // the choice, where a section around this one makes it
  // A second discriminator, a key below the first ("preset" below "policy"); empty: none.
  std::string second_discriminator;
  Names second_choices;
  std::string default_second_choice;
  std::string short_key;  // `section: value` is short for `section: {short_key: value}`
  bool is_value = false;  // a map of it is one value, such as a format (Key::TakesWhole)
  // Called before any key is read, with the choice that the map makes: what it sets, keys then
  // replace.
  std::function<void(const std::string& choice)> set_defaults;
  // Called after all keys were read, also where some of them had problems: it asks Problems::Clean
  // before it trusts a field.
  std::function<void(const YamlNode& map, const ReadContext&)> check;  // across the section's keys
  // At least one key of the first is given, and at most one of the second.
  KeyRule needs_one, not_both;
  // The field that gets the place of the section, for messages after the reading; null: none wants
  // it.
  Location* where = nullptr;
  std::shared_ptr<void> owner;  // of the fields, where nothing else holds them

  // Null if the section has no such key.
  const Key* Find(std::string_view name) const;
  // Whether the entry is the list that makes the choice `alternative` (`layers: [...]` in `model`).
  bool IsAlternative(const Entry& entry) const;
  // The choice that `map` makes; empty where it makes none or an unknown one.
  std::string ChoiceOf(const YamlNode& map) const;
  // Whether this choice has the key. The second discriminator is not looked at; MismatchOf does so.
  bool Knows(const Key& key, const std::string& choice) const;
  // Whether the choices that `map` makes know the key, the first discriminator before the second.
  // An unknown choice mismatches nothing, since it is a problem of its own.
  Mismatch MismatchOf(const Key& key, const YamlNode& map) const;
};

// Reads `map` into the fields behind the section's keys, adding problems; fields of wrong values
// keep their defaults.
void ReadSection(const YamlNode& map, const Section& section, const ReadContext& context);
// The section's values in the order of its keys, those of the current choice only.
YamlNode WriteSection(const Section& section);

// --- Kinds of keys ---

// A key without a field yet: `read` and `write` are still to be set. Fields must outlive their
// keys.
// The four functions after it are the base of most keys: `set` stores a value that was accepted,
// and `get` gives the value to write, or nothing where the field is unset.
Key MakeKey(std::string name, std::string type, std::string meaning);

using SetInteger = std::function<void(long long)>;
// `range` is checked in reading and becomes the schema's bounds and the words of messages.
Key IntegerKey(std::string name, SetInteger set, std::function<std::optional<long long>()> get,
               const Range& range, std::string meaning);
Key NumberKey(std::string name, std::function<void(double)> set,
              std::function<std::optional<double>()> get, const Range& range, std::string meaning);
Key SwitchKey(std::string name, std::function<void(bool)> set,
              std::function<std::optional<bool>()> get, std::string meaning);
// `set` and `get` speak of places in `words`.
Key WordKey(std::string name, Names words, std::function<void(std::size_t)> set,
            std::function<std::optional<std::size_t>()> get, std::string meaning);

// T: int or std::optional<int>.
// An int cannot hold every number of a range such as AtLeast(0), so its upper end is clamped; the
// words of the range stay those that were given.
template <class T>
Key Integer(std::string name, T& field, Range range, std::string meaning) {
  constexpr double kLargest = std::numeric_limits<int>::max();
  range = {range.low, std::min(range.high, kLargest), range.low_included, range.high_included,
           range.Text()};
  return IntegerKey(
      std::move(name), [&field](long long value) { field = static_cast<int>(value); },
      [&field] { return std::optional<long long>(field); }, range, std::move(meaning));
}
inline Key Integer(std::string name, std::int64_t& field, const Range& range, std::string meaning) {
  return IntegerKey(
      std::move(name), [&field](long long value) { field = value; },
      [&field] { return std::optional<long long>(field); }, range, std::move(meaning));
}
inline Key Integer(std::string name, std::optional<std::int64_t>& field, const Range& range,
                   std::string meaning) {
  return IntegerKey(
      std::move(name), [&field](long long value) { field = value; },
      [&field] { return std::optional<long long>(field); }, range, std::move(meaning));
}
// T: double or std::optional<double>.
template <class T>
Key Number(std::string name, T& field, const Range& range, std::string meaning) {
  return NumberKey(
      std::move(name), [&field](double value) { field = value; },
      [&field] { return std::optional<double>(field); }, range, std::move(meaning));
}
// T: bool or std::optional<bool>.
template <class T>
Key Switch(std::string name, T& field, std::string meaning) {
  return SwitchKey(
      std::move(name), [&field](bool value) { field = value; },
      [&field] { return std::optional<bool>(field); }, std::move(meaning));
}
// T: the enumeration E or std::optional<E>.
template <class T, class E>
Key Choice(std::string name, T& field, const EnumNames<E>& words, std::string meaning) {
  Names names;
  for (const auto& word : words) names.push_back(word.first);
  return WordKey(
      std::move(name), std::move(names),
      [&field, words](std::size_t index) { field = words[index].second; },
      [&field, words]() -> std::optional<std::size_t> {
        const std::optional<E> value = field;
        for (std::size_t i = 0; i < words.size(); ++i) {
          if (value == words[i].second) return i;
        }
        return std::nullopt;
      },
      std::move(meaning));
}

// Text; an empty field is unset and not written. `refuse` returns why a text is refused, or
// nothing, and may change it (expansion).
using RefuseText = std::function<std::string(std::string& text)>;
// An empty text is a problem, so `write` may take an empty field for an unset one.
Key Text(std::string name, std::string& field, std::string meaning, RefuseText refuse = nullptr);
// One of `words`, stored as text.
Key WordText(std::string name, std::string& field, const Names& words, std::string meaning);
// An integer n, meaning [n, n], or [height, width].
// Two equal numbers are written as one.
Key Pair(std::string name, std::array<int, 2>& field, const Range& range, std::string meaning);
// A list replaces the default as a whole; items that are refused are left out of the field, and the
// reading fails anyway.
Key IntegerList(std::string name, std::vector<int>& field, const Range& range, std::string meaning);
Key NumberList(std::string name, std::vector<double>& field, const Range& range,
               std::string meaning);
// `words` empty: any text.
// A text that stands twice is a problem.
Key TextList(std::string name, std::vector<std::string>& field, Names words, std::string meaning);
// A key of a list (its first schema) with so many items; any other number is answered by
// `expected`, and a list of fewer or more may be read all the same.
Key OfItems(Key key, std::size_t least, std::size_t most, std::string expected);
// Any texts, each with the place where it was written.
Key PlacedTexts(std::string name, std::vector<std::string>& field, std::vector<Location>& places,
                std::string meaning);

// A key that means `second` to the choices that know that one, else `first`; both have its name.
// `chosen` is the choice of their section once it was read, which says how the key is written. The
// caller gives the words of its default.
Key ByChoice(Key first, Key second, const std::string& chosen);

// The section is kept in the key, so the fields that it binds must live as long as the key.
Key Nested(std::string name, Section section, std::string meaning);
// The table of a struct of its own, to show what a map may hold. `make` is a Section(T&).
// It is a table over an example struct that it owns: the schema and the list of keys walk it
// without any configuration being read.
template <class T, class Make>
std::shared_ptr<Section> ExampleSection(Make make) {
  const auto example = std::make_shared<T>();
  auto section = std::make_shared<Section>(make(*example));
  section->owner = example;
  return section;
}
// A plain function gives the same table each time: it is kept, since reading one configuration asks
// for some thousands of them.
// It is kept by thread, since a table's closures write to the one example struct.
template <class T>
std::shared_ptr<Section> ExampleSection(Section (*make)(T&)) {
  thread_local std::map<Section (*)(T&), std::shared_ptr<Section>> kept;
  if (const auto known = kept.find(make); known != kept.end()) return known->second;
  auto section = ExampleSection<T, Section (*)(T&)>(make);
  return kept[make] = std::move(section);
}
// A map that may be missing; `make` declares its keys.
// The field is set even where a key within had a problem; the reading fails then as a whole.
template <class T>
Key OptionalMap(std::string name, std::optional<T>& field, Section (*make)(T&),
                std::string meaning) {
  Key key = MakeKey(std::move(name), "map", std::move(meaning));
  key.default_text = "none";
  key.section = ExampleSection<T>(make);
  key.schemas = {MapSchema([section = key.section] { return section; })};
  key.read = [&field, make](const YamlNode& node, const ReadContext& context) {
    T read;
    ReadSection(node, make(read), context);
    field = read;
  };
  key.write = [&field, make]() -> std::optional<YamlNode> {
    if (!field) return std::nullopt;
    return WriteSection(make(*field));
  };
  return key;
}
// A list of maps: `make`, a Section(T&), declares the keys of one entry.
// Each entry is read into a struct with its own defaults, then moved to the field; that is why
// `make` binds to the local entry and never to an element of the vector, which moves as it grows.
template <class T, class Make>
Key Entries(std::string name, std::vector<T>& field, Make make, std::string meaning) {
  Key key = MakeKey(std::move(name), "list of maps", std::move(meaning));
  key.default_text = "[]";
  key.section = ExampleSection<T>(make);
  key.schemas = {ListSchema({MapSchema([entry = key.section] { return entry; })})};
  key.read = [&field, make](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kList) {
      context.problems.Add(node, context.path, Expected("a list of maps", node));
      return;
    }
    for (const YamlNode& item : node.items) {
      T entry;
      ReadSection(item, make(entry), {context.problems, context.path + "[]", item});
      field.push_back(std::move(entry));
    }
  };
  key.write = [&field, make]() -> std::optional<YamlNode> {
    std::vector<YamlNode> items;
    for (T& entry : field) items.push_back(WriteSection(make(entry)));
    return List(std::move(items));
  };
  return key;
}

// The names of our keys and words in other programs: hints for users who know those. They only
// extend messages about unknown keys and words (keys/section.cpp, keys/keys.cpp); a foreign name is
// never accepted instead of ours.
//
// The hint for a name that a section ("optimizer"; "" is the document) does not have as a key:
// "did you mean 'lr'?", or what replaces it. Empty: there is none. Letter case and the difference
// between - and _ are ignored.
std::string ForeignKeyHint(const std::string& section, const std::string& name);

// The same for a word that is no value of the key at `path` ("schedule.kind"), and for one that
// names no number format.
std::string ForeignWordHint(const std::string& path, const std::string& word);
std::string ForeignFormatHint(const std::string& name);

// "; " and the hint; "" if there is none.
std::string AsEnding(const std::string& hint);

}  // namespace ada::config
