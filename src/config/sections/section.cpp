// Reading and writing a map by its table of keys: unknown, misplaced and missing keys are found
// here.
#include <algorithm>

#include "config/keys.h"
#include "core/text.h"

namespace ada::config {
namespace {

std::string Listed(const Names& names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == names.size() ? last : ", ";
    text += before + names[i];
  }
  return text;
}

// "policy adaptive", or words for the alternative to a chooser.
std::string ChoiceName(const Section& section, const std::string& chooser,
                       const std::string& choice) {
  return choice == section.alternative ? "a model of own layers" : chooser + " " + choice;
}

std::string MisplacedMessage(const Section& section, const Key& key, const Misfit& misfit) {
  if (key.name == section.alternative) {
    return "give either " + section.chooser + " or " + section.alternative + ", not both";
  }
  return "does not belong to " + ChoiceName(section, misfit.chooser, misfit.choice) + ", only to " +
         Listed(*misfit.known, " and ");
}

// The nearest of the keys that the choice knows, else of all.
std::string UnknownKey(const std::string& name, const Section& section, const std::string& choice) {
  Names all, fitting;
  for (const Key& key : section.keys) {
    all.push_back(key.name);
    if (choice.empty() || section.Knows(key, choice)) fitting.push_back(key.name);
  }
  for (const Names& names : {fitting, all}) {
    const std::string nearest = NearestName(name, names);
    if (!nearest.empty()) return "unknown key; did you mean '" + nearest + "'?";
  }
  return "unknown key; known here: " + Listed(fitting, ", ");
}

void ReadKey(const Entry& entry, const Section& section, const YamlNode& map,
             const std::string& choice, const Reading& reading) {
  const std::string path = Join(reading.path, entry.key.text);
  const Key* key = section.Find(entry.key.text);
  if (!key) {
    reading.problems.Add(entry.key, path, UnknownKey(entry.key.text, section, choice));
    return;
  }
  const Misfit misfit = section.MisfitOf(*key, map);
  if (misfit.known) {
    reading.problems.Add(entry.key, path, MisplacedMessage(section, *key, misfit));
    return;
  }
  key->read(entry.value, {reading.problems, path, entry.key});
}

// What the scalar at `name` says, if it is one of `words`; `otherwise` where it is not given.
std::string WordAt(const YamlNode& map, const std::string& name, const Names& words,
                   const std::string& otherwise) {
  const YamlNode* value = map.Find(name);
  if (!value) return otherwise;
  const bool known = value->kind == YamlNode::Kind::kScalar && Contains(words, value->text);
  return known ? value->text : "";
}

// What the key called `name` would write.
std::string Written(const Section& section, const std::string& name) {
  const Key* key = name.empty() ? nullptr : section.Find(name);
  const std::optional<YamlNode> value = key ? key->write() : std::nullopt;
  return value ? value->text : "";
}

void FindMissing(const YamlNode& map, const Section& section, const std::string& choice,
                 const Reading& reading) {
  for (const Key& key : section.keys) {
    const bool by_choice = !choice.empty() && Contains(key.required_for, choice);
    if ((!key.required && !by_choice) || map.FindEntry(key.name)) continue;
    reading.problems.Add(
        reading.key, Join(reading.path, key.name),
        by_choice ? "missing; " + ChoiceName(section, section.chooser, choice) + " needs it"
                  : "missing; it has no default");
  }
}

// The section's rules about keys that depend on each other.
void CheckRules(const YamlNode& map, const Section& section, const Reading& reading) {
  const auto given = [&](const Names& names) {
    return std::count_if(names.begin(), names.end(),
                         [&](const std::string& name) { return map.FindEntry(name) != nullptr; });
  };
  const KeyRule& needs_one = section.needs_one;
  if (!needs_one.keys.empty() && given(needs_one.keys) == 0) {
    reading.problems.Add(reading.key, reading.path, needs_one.refusal);
  }
  const KeyRule& not_both = section.not_both;
  if (given(not_both.keys) < 2) return;
  const std::string& last = not_both.keys.back();
  const Entry* entry = map.FindEntry(last);
  reading.problems.Add(entry ? entry->key : reading.key, Join(reading.path, last),
                       not_both.refusal);
}

}  // namespace

std::string Join(const std::string& path, const std::string& name) {
  return path.empty() ? name : path + "." + name;
}

const Key* Section::Find(std::string_view name) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

std::string Section::ChoiceOf(const YamlNode& map) const {
  if (chosen) return *chosen;
  if (chooser.empty()) return "";
  const bool other = !alternative.empty() && map.Find(alternative);
  return WordAt(map, chooser, choices, other ? alternative : default_choice);
}

bool Section::Knows(const Key& key, const std::string& choice) const {
  return key.only_for.empty() || Contains(key.only_for, choice);
}

Misfit Section::MisfitOf(const Key& key, const YamlNode& map) const {
  const std::string choice = ChoiceOf(map);
  if (!choice.empty() && !Knows(key, choice)) return {chooser, choice, &key.only_for};
  if (key.refined_for.empty()) return {};
  const std::string refinement = WordAt(map, refiner, refinements, default_refinement);
  if (refinement.empty() || Contains(key.refined_for, refinement)) return {};
  return {refiner, refinement, &key.refined_for};
}

void ReadSection(const YamlNode& map, const Section& section, const Reading& reading) {
  if (map.kind != YamlNode::Kind::kMap) {
    reading.problems.Add(map, reading.path, Expected("a map of keys and values", map));
    return;
  }
  if (section.where) *section.where = reading.problems.Where(reading.key);
  const std::string choice = section.ChoiceOf(map);
  if (section.set_defaults && !choice.empty()) section.set_defaults(choice);
  for (const Entry& entry : map.entries) ReadKey(entry, section, map, choice, reading);
  FindMissing(map, section, choice, reading);
  CheckRules(map, section, reading);
  if (section.check) section.check(map, reading);
}

YamlNode WriteSection(const Section& section) {
  YamlNode map;
  map.kind = YamlNode::Kind::kMap;
  std::string choice = section.chosen.value_or(Written(section, section.chooser));
  if (choice.empty()) choice = section.alternative;
  const std::string refinement = Written(section, section.refiner);
  for (const Key& key : section.keys) {
    if (!choice.empty() && !section.Knows(key, choice)) continue;
    if (!key.refined_for.empty() && !Contains(key.refined_for, refinement)) continue;
    if (key.unused && key.unused()) continue;
    std::optional<YamlNode> value = key.write();
    if (value) Append(map, key.name, std::move(*value));
  }
  return map;
}

}  // namespace ada::config
