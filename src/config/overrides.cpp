// Setting by dotted path, then dropping section by section.
#include "config/overrides.h"

#include <algorithm>
#include <optional>

#include "config/yaml/document.h"

namespace ada::config {
namespace {

// "a.b.c" in parts; nothing where a part is empty.
// Dots separate names: a path cannot address a key that holds one, nor an entry of a list.
std::optional<Names> Split(const std::string& path) {
  Names parts;
  std::size_t start = 0;
  while (true) {
    const std::size_t dot = path.find('.', start);
    parts.push_back(path.substr(start, dot - start));
    if (parts.back().empty()) return std::nullopt;
    if (dot == std::string::npos) return parts;
    start = dot + 1;
  }
}

YamlNode Named(const std::string& name, int source) {
  YamlNode key = Scalar(name);
  key.source = source;
  return key;
}

// The value of the entry becomes that of `short_key` in a map.
void SpellOut(Entry& entry, const std::string& short_key) {
  YamlNode inner = entry.key;
  inner.text = short_key;
  YamlNode spelled = entry.value;
  spelled.kind = YamlNode::Kind::kMap;
  spelled.entries = {{std::move(inner), entry.value}};
  entry.value = std::move(spelled);
}

// `device: cpu` is short for `device: {kind: cpu}`.
// Done before and after the overrides are set, so that `--set device.threads=2` adds to a file's
// `device: cpu` and does not replace it, and so that a short form given by --set is a map as well.
void SpellOutShortForms(YamlNode& map, const Section& section) {
  for (const Key& key : section.keys) {
    Entry* entry = key.section ? map.FindEntry(key.name) : nullptr;
    if (!entry) continue;
    YamlNode& value = entry->value;
    if (value.kind == YamlNode::Kind::kScalar && !key.section->short_key.empty())
      SpellOut(*entry, key.section->short_key);
    if (value.kind == YamlNode::Kind::kMap) SpellOutShortForms(value, *key.section);
  }
}

// The section below `document` that `parts` leads to; null where it is none.
const Section* SectionAt(const Section& document, const Names& parts) {
  const Section* section = &document;
  for (const std::string& part : parts) {
    const Key* key = section->Find(part);
    if (!key || !key->section) return nullptr;
    section = key->section.get();
  }
  return section;
}

// Puts one override after the other into the tree; a later one sees what an earlier one made.
class Setter {
 public:
  Setter(YamlNode& root, const Section& document, Problems& problems,
         std::vector<std::string>& notes)
      : root_(root), document_(document), problems_(problems), notes_(notes) {}

  void Set(const std::string& path, YamlNode value, int source) {
    YamlNode at = Named(path, source);
    std::optional<Names> parts = Split(path);
    if (!parts) {
      problems_.Add(at, path, "expected a key such as scaling.policy");
      return;
    }
    // `--set precision=fp16` means precision.format: the keys that the file has beside it stay.
    const Section* section = SectionAt(document_, *parts);
    if (section && !section->short_key.empty() && value.kind == YamlNode::Kind::kScalar) {
      parts->push_back(section->short_key);  // the map's other keys stay
    }
    YamlNode* node = &root_;
    std::string reached;
    const Section* around = &document_;  // null: the keys around are unknown
    for (std::size_t i = 0; i + 1 < parts->size(); ++i) {
      reached = Join(reached, (*parts)[i]);
      const Key* key = around ? around->Find((*parts)[i]) : nullptr;
      around = key ? key->section.get() : nullptr;
      const bool sets_key = around && !around->is_value && around->Find((*parts)[i + 1]);
      node = Enter(*node, (*parts)[i], reached, path, at, sets_key ? key : nullptr);
      if (!node) return;
    }
    Put(*node, Named(parts->back(), source), std::move(value));
  }

 private:
  // The map below `name`, made where there is none; null and a problem for a list. key: not null
  // where one of the keys of its section is set, which no format has.
  YamlNode* Enter(YamlNode& map, const std::string& name, const std::string& reached,
                  const std::string& path, const YamlNode& at, const Key* key) {
    Entry* entry = map.FindEntry(name);
    if (!entry) {
      map.entries.push_back({Named(name, at.source), YamlNode()});
      entry = &map.entries.back();
      entry->value.source = at.source;
      entry->value.kind = YamlNode::Kind::kMap;
    }
    YamlNode& value = entry->value;
    if (value.kind == YamlNode::Kind::kList) {
      problems_.Add(at, path,
                    reached + " is a list; set the whole list: --set '" + reached + "=[...]'");
      return nullptr;
    }
    const bool is_format = key && key->TakesWhole(value);
    if (is_format && !key->section->short_key.empty()) {
      SpellOut(*entry, key->section->short_key);
      return &value;
    }
    // A single value is where the path needs a map, such as `normalize: none` for an override of
    // data.normalize.mean: the value is dropped, with a note.
    if (value.kind != YamlNode::Kind::kMap || is_format) {
      if (value.kind != YamlNode::Kind::kNull) {
        notes_.push_back(ToString(problems_.Where(entry->key)) + ": " + reached + ": " +
                         FlowText(value) + " dropped for " + ToString(problems_.Where(at)) +
                         (problems_.Where(at).line > 0 ? ", " + path : ""));
      }
      value = YamlNode();
      value.kind = YamlNode::Kind::kMap;
      value.source = at.source;
    }
    return &value;
  }

  static void Put(YamlNode& map, YamlNode key, YamlNode value) {
    if (Entry* entry = map.FindEntry(key.text)) {
      *entry = {std::move(key), std::move(value)};
    } else {
      map.entries.push_back({std::move(key), std::move(value)});
    }
  }

  YamlNode& root_;
  const Section& document_;
  Problems& problems_;
  std::vector<std::string>& notes_;
};

// Removes keys of the file that belonged to the choice that --set replaced. A mismatch for which
// the file itself is to blame stays in the tree and becomes a problem in reading.
class Dropper {
 public:
  Dropper(const Problems& problems, std::vector<std::string>& notes)
      : problems_(problems), notes_(notes) {}

  // Drops keys that a choice made by --set does not have, in `map` and below. There are two cases:
  // --set gave the list that is a choice by itself (`model.layers`), so the file's discriminator
  // (`zoo`) is dropped with all keys that only it has; or --set gave a discriminator, and the keys
  // that its value does not have are dropped.
  void Drop(YamlNode& map, const Section& section) {
    const Entry* discriminator = map.FindEntry(section.discriminator);
    const Entry* other = section.alternative.empty() ? nullptr : map.FindEntry(section.alternative);
    if (other && !section.IsAlternative(*other)) other = nullptr;
    if (other && other->key.source > 0 && (!discriminator || discriminator->key.source == 0)) {
      const std::string reason = ToString(problems_.Where(other->key)) + " replaces it";
      DropKeys(map, section, [&](const Entry&, const Key& key) {
        const bool replaced =
            key.name == section.discriminator || !section.Knows(key, section.alternative);
        return replaced ? reason : "";
      });
    } else {
      DropKeys(map, section, [&](const Entry& entry, const Key& key) {
        return MismatchReason(entry, key, section, map);
      });
    }
    for (const Key& key : section.keys) {
      Entry* entry = key.section ? map.FindEntry(key.name) : nullptr;
      if (entry && entry->value.kind == YamlNode::Kind::kMap) Drop(entry->value, *key.section);
      if (!entry || entry->value.kind != YamlNode::Kind::kList || !key.section->chosen) continue;
      if (!IsSet(map, section.discriminator)) continue;
      // Entries of a list whose keys depend on an outer choice (scaling.layers) lose such keys too;
      // the copy of their table is given the choice, which a reader would find in the field.
      Section inner = *key.section;
      inner.chosen = section.ChoiceOf(map);
      for (YamlNode& item : entry->value.items) {
        DropKeys(item, inner, [&](const Entry&, const Key& inner_key) {
          const Mismatch mismatch = inner.MismatchOf(inner_key, item);
          return mismatch.known ? Reason(mismatch) : "";
        });
      }
    }
  }

 private:
  static bool IsSet(const YamlNode& map, const std::string& key) {
    const Entry* entry = map.FindEntry(key);
    return entry && entry->key.source > 0;
  }

  static std::string Reason(const Mismatch& mismatch) {
    return mismatch.discriminator + " " + mismatch.choice + " does not know it";
  }

  // Empty if the key may stay: it fits, or the file by itself is wrong.
  static std::string MismatchReason(const Entry& entry, const Key& key, const Section& section,
                                    const YamlNode& map) {
    Mismatch mismatch = section.MismatchOf(key, map);
    if (section.IsAlternative(entry) && section.ChoiceOf(map) != section.alternative)
      mismatch = {section.discriminator, section.ChoiceOf(map), &key.only_for};
    if (mismatch.known) return IsSet(map, mismatch.discriminator) ? Reason(mismatch) : "";
    const bool changed = std::any_of(map.entries.begin(), map.entries.end(),
                                     [](const Entry& other) { return other.key.source > 0; });
    return changed && key.idle ? key.idle(map) : "";
  }

  // Drops the file's keys for which `reason` gives one.
  // Keys that were given by --set or come from model.file stay: a mismatch of theirs is an error.
  void DropKeys(YamlNode& map, const Section& section,
                const std::function<std::string(const Entry&, const Key&)>& reason) {
    std::vector<Entry> kept;
    for (const Entry& entry : map.entries) {
      const Key* key = section.Find(entry.key.text);
      const std::string why = key && entry.key.source == 0 ? reason(entry, *key) : "";
      if (why.empty()) {
        kept.push_back(entry);
      } else {
        notes_.push_back(ToString(problems_.Where(entry.key)) + ": " +
                         Join(section.path, entry.key.text) + " dropped: " + why);
      }
    }
    map.entries = std::move(kept);
  }

  const Problems& problems_;
  std::vector<std::string>& notes_;
};

}  // namespace

void SetOverrides(const Overrides& overrides, const Section& document, YamlNode& root,
                  Problems& problems, std::vector<std::string>& notes) {
  SpellOutShortForms(root, document);
  Setter setter(root, document, problems, notes);
  // The place of an override among the others is its source, from 1; Problems looks it up in
  // PlacesOf.
  int source = 0;
  for (const Override& item : overrides) {
    const std::string &path = item.first, &text = item.second;
    ++source;
    try {
      YamlNode value = ParseYaml(text, source);
      value.source = source;
      setter.Set(path, std::move(value), source);
    } catch (const ParseProblem& problem) {
      problems.Add(Named(path, source), path, "'" + text + "': " + problem.message);
    }
  }
  SpellOutShortForms(root, document);
}

void DropMeaningless(const Section& document, YamlNode& root, const Problems& problems,
                     std::vector<std::string>& notes) {
  Dropper(problems, notes).Drop(root, document);
}

void ApplyOverrides(const Overrides& overrides, const Section& document, YamlNode& root,
                    Problems& problems, std::vector<std::string>& notes) {
  SetOverrides(overrides, document, root, problems, notes);
  DropMeaningless(document, root, problems, notes);
}

}  // namespace ada::config
