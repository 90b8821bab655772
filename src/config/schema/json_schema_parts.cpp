// Values as JSON, and what a choice (policy, kind, data set, preset) changes about the keys of its
// section: choices with equal effects share an if-then.
#include "config/schema/json_schema_parts.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "io/text.h"

namespace ada::config {
namespace {

using Json = SchemaJson;

// What some choices of a section refuse and need.
// Merged joins those that refuse and need the same.
struct Branch {
  Names choices;
  Names refused, needed;
  std::vector<std::pair<std::string, Names>> refused_in;  // in the entries of a list
  bool empty() const { return refused.empty() && needed.empty() && refused_in.empty(); }
  bool SameAs(const Branch& other) const {
    return refused == other.refused && needed == other.needed && refused_in == other.refused_in;
  }
};

// The branches of `branches` with equal contents become one; those without contents go.
std::vector<Branch> Merged(const std::vector<Branch>& branches) {
  std::vector<Branch> merged;
  for (const Branch& branch : branches) {
    if (branch.empty()) continue;
    const auto same = std::find_if(merged.begin(), merged.end(),
                                   [&](const Branch& other) { return other.SameAs(branch); });
    if (same == merged.end()) {
      merged.push_back(branch);
    } else {
      same->choices.insert(same->choices.end(), branch.choices.begin(), branch.choices.end());
    }
  }
  return merged;
}

// The keys that `section` does not have under `choice`.
Names Mismatches(const Section& section, const std::string& choice) {
  Names names;
  for (const Key& key : section.keys) {
    if (!section.Knows(key, choice)) names.push_back(key.name);
  }
  return names;
}

// A list whose entries follow the choice of this section (scaling.layers) refuses keys within its
// entries, so these are listed by the key of the list.
Branch BranchOf(const Section& section, const std::string& choice) {
  Branch branch;
  branch.choices = {choice};
  branch.refused = Mismatches(section, choice);
  for (const Key& key : section.keys) {
    if (Contains(key.required_for, choice)) branch.needed.push_back(key.name);
    if (!key.section || !key.section->chosen || !section.Knows(key, choice)) continue;
    const Names inner = Mismatches(*key.section, choice);
    if (!inner.empty()) branch.refused_in.emplace_back(key.name, inner);
  }
  return branch;
}

Branch SecondBranchOf(const Section& section, const std::string& second) {
  Branch branch;
  branch.choices = {second};
  for (const Key& key : section.keys) {
    if (!key.only_for_second.empty() && !Contains(key.only_for_second, second)) {
      branch.refused.push_back(key.name);
    }
  }
  return branch;
}

// Holds for a map whose `discriminator` is one of `choices`, or is not given where that means one
// of them.
// A map without the discriminator satisfies the `properties` test of JSON Schema, which is what is
// wanted where the default is among the choices; elsewhere `required` rules it out.
Json ConditionJson(const std::string& discriminator, const Names& choices,
                   const std::string& default_word) {
  Json json = {{"properties", {{discriminator, {{"enum", choices}}}}}};
  if (!Contains(choices, default_word)) json["required"] = {discriminator};
  return json;
}

Json RefusedJson(const Names& names) {
  Json json = Json::object();
  for (const std::string& name : names) json[name] = false;
  return json;
}

// A property whose schema is `false` may not be there.
Json ConsequenceJson(const Branch& branch) {
  Json properties = RefusedJson(branch.refused);
  for (const auto& [list, names] : branch.refused_in) {
    properties[list] = {{"items", {{"properties", RefusedJson(names)}}}};
  }
  Json json = Json::object();
  if (!properties.empty()) json["properties"] = properties;
  if (!branch.needed.empty()) json["required"] = branch.needed;
  return json;
}

// A number as short as it can be: whole ones without a point.
Json NumberJson(double value) {
  constexpr double kExact = 1e15;
  if (value == std::floor(value) && std::fabs(value) < kExact) {
    return static_cast<std::int64_t>(value);
  }
  return value;
}

// The rules of `key`'s section, which depend on the choice that `section` makes: those of most
// choices, unless it is one of a group of others.
Json RulesByChoice(const Section& section, const Key& key) {
  // set_defaults changes what the inner section requires and starts from; the tables are asked
  // again after each choice, and the call at the end leaves them as the alternative has them.
  const auto rules_by = [&](const std::string& choice) {
    section.set_defaults(choice);
    return BranchesOf(*key.section);
  };
  const auto within = [&key](const Json& rules) {
    return Json{{"properties", {{key.name, {{"allOf", rules}}}}}};
  };
  const Json usual = rules_by(section.alternative);
  std::vector<std::pair<Json, Names>> groups;
  for (const std::string& choice : section.choices) {
    const Json rules = rules_by(choice);
    if (rules == usual) continue;
    const auto same = std::find_if(groups.begin(), groups.end(),
                                   [&](const auto& group) { return group.first == rules; });
    if (same == groups.end())
      groups.push_back({rules, {choice}});
    else
      same->second.push_back(choice);
  }
  Json rule = within(rules_by(section.alternative));
  for (const auto& [rules, choices] : groups)
    rule = {{"if", ConditionJson(section.discriminator, choices, section.default_choice)},
            {"then", within(rules)},
            {"else", rule}};
  return rule;
}

}  // namespace

SchemaJson RangeJson(const char* type, const Range& range) {
  Json json = {{"type", type}};
  if (std::isfinite(range.low)) {
    json[range.low_included ? "minimum" : "exclusiveMinimum"] = NumberJson(range.low);
  }
  if (std::isfinite(range.high)) {
    json[range.high_included ? "maximum" : "exclusiveMaximum"] = NumberJson(range.high);
  }
  return json;
}

SchemaJson TextJson(const ValueSchema& schema) {
  Json json = {{"type", "string"}};
  if (schema.plain) json["type"] = {"string", "number", "boolean"};
  json["minLength"] = 1;
  if (!schema.pattern.empty()) json["pattern"] = schema.pattern;
  return json;
}

// A scalar of the tree is text, so it is read back by the reader's own rules to find what it is.
SchemaJson ValueOf(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar:
      break;
    case YamlNode::Kind::kList: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(ValueOf(item));
      return list;
    }
    case YamlNode::Kind::kMap: {
      Json map = Json::object();
      for (const Entry& entry : node.entries) map[entry.key.text] = ValueOf(entry.value);
      return map;
    }
  }
  bool is_true = false;
  if (ReadSwitch(node, is_true).empty()) return is_true;
  long long whole = 0;
  if (ReadInteger(node, AnyNumber(), whole).empty()) return whole;
  double number = 0;
  if (ReadNumber(node, AnyNumber(), number).empty()) return number;
  return node.text;
}

SchemaJson BranchesOf(const Section& section) {
  Json rules = Json::array();
  std::vector<Branch> branches;
  if (!section.chosen) {
    for (const std::string& choice : section.choices) {
      branches.push_back(BranchOf(section, choice));
    }
  }
  for (const Branch& branch : Merged(branches)) {
    rules.push_back(
        {{"if", ConditionJson(section.discriminator, branch.choices, section.default_choice)},
         {"then", ConsequenceJson(branch)}});
  }
  // The alternative is chosen by its list, which is there without the discriminator's key.
  if (!section.alternative.empty()) {
    const Json other = {{"required", {section.alternative}},
                        {"not", {{"required", {section.discriminator}}}}};
    rules.push_back(
        {{"if", other}, {"then", ConsequenceJson(BranchOf(section, section.alternative))}});
  }
  branches.clear();
  for (const std::string& second : section.second_choices) {
    branches.push_back(SecondBranchOf(section, second));
  }
  for (const Branch& branch : Merged(branches)) {
    rules.push_back({{"if", ConditionJson(section.second_discriminator, branch.choices,
                                          section.default_second_choice)},
                     {"then", ConsequenceJson(branch)}});
  }
  for (const Key& key : section.keys)
    if (key.section && key.section->starts_by_outer) rules.push_back(RulesByChoice(section, key));
  return rules;
}

}  // namespace ada::config
