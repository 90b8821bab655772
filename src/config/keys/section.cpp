// Reading and writing a map by its table of keys: unknown, misplaced and missing keys are found
// here.
// ReadSection is the one procedure for every map of the file: it sets the choice's defaults, reads
// entries in the order written, then looks for missing keys, rules and the section's own check.
#include <algorithm>

#include "config/keys/keys.h"
#include "io/text.h"

namespace ada::config {
namespace {

std::string ListedNames(const Names& names, const char* last) {
  std::string text;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const char* before = i == 0 ? "" : i + 1 == names.size() ? last : ", ";
    text += before + names[i];
  }
  return text;
}

// "policy adaptive", or what the alternative to a discriminator is called.
std::string ChoiceName(const Section& section, const std::string& discriminator,
                       const std::string& choice) {
  return choice == section.alternative ? "a model of own layers" : discriminator + " " + choice;
}

// Says why a known key does not fit the choice, and names the choices that have it. `alternative`
// is not among them: it is a list, not a word that one could choose.
std::string MisplacedMessage(const Section& section, const Entry& entry, const Mismatch& mismatch) {
  if (section.IsAlternative(entry)) {
    return "give either " + section.discriminator + " or " + section.alternative + ", not both";
  }
  Names known = *mismatch.known;
  std::erase(known, section.alternative);
  return "does not belong to " + ChoiceName(section, mismatch.discriminator, mismatch.choice) +
         ", only to " + ListedNames(known, " and ");
}

// What other programs mean by it, else the nearest of the keys that the choice knows, else of all.
std::string UnknownKey(const Entry& entry, const Section& section, const std::string& choice) {
  const std::string& name = entry.key.text;
  const std::string foreign = ForeignKeyHint(section.path, name);
  if (!foreign.empty()) return "unknown key; " + foreign;
  Names all, fitting;
  for (const Key& key : section.keys) {
    all.push_back(key.name);
    if (choice.empty() || section.Knows(key, choice)) fitting.push_back(key.name);
  }
  for (const Names& names : {fitting, all}) {
    const std::string nearest = NearestName(name, names);
    if (!nearest.empty()) return "unknown key; did you mean '" + nearest + "'?";
  }
  return "unknown key; known here: " + ListedNames(fitting, ", ");
}

// Reads one entry, or says why not: unknown, or not of this choice.
void ReadKey(const Entry& entry, const Section& section, const YamlNode& map,
             const std::string& choice, const ReadContext& context) {
  const std::string path = Join(context.path, entry.key.text);
  const Key* key = section.Find(entry.key.text);
  if (!key) {
    context.problems.Add(entry.key, path, UnknownKey(entry, section, choice));
    return;
  }
  // A list as `layers` is allowed only if no other network is chosen, although other choices may
  // have a number of this name.
  Mismatch mismatch = section.MismatchOf(*key, map);
  if (section.IsAlternative(entry) && !choice.empty() && choice != section.alternative)
    mismatch = {section.discriminator, choice, &key->only_for};
  if (mismatch.known) {
    context.problems.Add(entry.key, path, MisplacedMessage(section, entry, mismatch));
    return;
  }
  key->read(entry.value, {context.problems, path, entry.key, choice});
}

// The scalar at `name`, if it is one of `words`; `otherwise` if it is missing. Empty for an unknown
// word, which turns off the checks that depend on a choice.
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

// A message that the choice needs a key is given where that is the reason, else that there is no
// default.
void FindMissing(const YamlNode& map, const Section& section, const std::string& choice,
                 const ReadContext& context) {
  for (const Key& key : section.keys) {
    const bool by_choice = !choice.empty() && Contains(key.required_for, choice);
    if ((!key.required && !by_choice) || map.FindEntry(key.name)) continue;
    context.problems.Add(
        context.key, Join(context.path, key.name),
        by_choice ? "missing; " + ChoiceName(section, section.discriminator, choice) + " needs it"
                  : "missing; it has no default");
  }
}

// The section's rules about keys that depend on each other.
void CheckRules(const YamlNode& map, const Section& section, const ReadContext& context) {
  const auto given = [&](const Names& names) {
    return std::count_if(names.begin(), names.end(),
                         [&](const std::string& name) { return map.FindEntry(name) != nullptr; });
  };
  const KeyRule& needs_one = section.needs_one;
  if (!needs_one.keys.empty() && given(needs_one.keys) == 0) {
    context.problems.Add(context.key, context.path, needs_one.refusal);
  }
  const KeyRule& not_both = section.not_both;
  if (given(not_both.keys) < 2) return;
  const std::string& last = not_both.keys.back();
  const Entry* entry = map.FindEntry(last);
  context.problems.Add(entry ? entry->key : context.key, Join(context.path, last),
                       not_both.refusal);
}

}  // namespace

const Key* Section::Find(std::string_view name) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const Key& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

bool Section::IsAlternative(const Entry& entry) const {
  return entry.key.text == alternative && entry.value.kind == YamlNode::Kind::kList;
}

std::string Section::ChoiceOf(const YamlNode& map) const {
  if (chosen) return *chosen;
  if (discriminator.empty()) return "";
  const bool other = !alternative.empty() && map.Find(alternative);
  return WordAt(map, discriminator, choices, other ? alternative : default_choice);
}

bool Section::Knows(const Key& key, const std::string& choice) const {
  return key.only_for.empty() || Contains(key.only_for, choice);
}

Mismatch Section::MismatchOf(const Key& key, const YamlNode& map) const {
  const std::string choice = ChoiceOf(map);
  if (!choice.empty() && !Knows(key, choice)) return {discriminator, choice, &key.only_for};
  if (key.only_for_second.empty()) return {};
  const std::string second =
      WordAt(map, second_discriminator, second_choices, default_second_choice);
  if (second.empty() || Contains(key.only_for_second, second)) return {};
  return {second_discriminator, second, &key.only_for_second};
}

void ReadSection(const YamlNode& map, const Section& section, const ReadContext& context) {
  if (map.kind != YamlNode::Kind::kMap) {
    context.problems.Add(map, context.path, Expected("a map of keys and values", map));
    return;
  }
  // The place is noted first, so that it is there for messages of the section's own check.
  if (section.where) *section.where = context.problems.Where(context.key);
  const std::string choice = section.ChoiceOf(map);
  if (section.set_defaults && !choice.empty()) section.set_defaults(choice);
  for (const Entry& entry : map.entries) ReadKey(entry, section, map, choice, context);
  FindMissing(map, section, choice, context);
  CheckRules(map, section, context);
  if (section.check) section.check(map, context);
}

YamlNode WriteSection(const Section& section) {
  YamlNode map;
  map.kind = YamlNode::Kind::kMap;
  // The choice comes from the field and not from a map: there is none when a configuration is
  // written. No word means the alternative, a model of listed layers, or the default.
  std::string choice = section.chosen.value_or(Written(section, section.discriminator));
  if (choice.empty())
    choice = section.alternative.empty() ? section.default_choice : section.alternative;
  const std::string second = Written(section, section.second_discriminator);
  for (const Key& key : section.keys) {
    if (!choice.empty() && !section.Knows(key, choice)) continue;
    if (!key.only_for_second.empty() && !Contains(key.only_for_second, second)) continue;
    if (key.unused && key.unused()) continue;
    std::optional<YamlNode> value = key.write();
    if (value) Append(map, key.name, std::move(*value));
  }
  return map;
}

}  // namespace ada::config
