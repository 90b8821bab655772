// The JSON Schema of configurations, from the tables of keys: every section becomes a definition,
// every choice in it an if-then; choices with equal effects share one.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/keys/keys.h"
#include "config/schema/schema.h"
#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

using SchemaJson = nlohmann::ordered_json;  // keys stay in the order written

// Numbers of `type` ("integer", "number") within a range.
SchemaJson RangeJson(const char* type, const Range& range);
// Text that fits the schema's pattern.
SchemaJson TextJson(const ValueSchema& schema);
// A value as a key writes it: a number, a boolean, text or a list or map of them.
SchemaJson NodeJson(const YamlNode& node);

// What the choices in a section refuse and need beyond its other rules: a list of if-thens. Those
// of a section within it that starts by the choice around it are among them; asked of that section
// itself they are those of the choice whose set_defaults was called last.
SchemaJson BranchesOf(const Section& section);

// --- Values, and what a choice changes ---

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
SchemaJson NodeJson(const YamlNode& node) {
  switch (node.kind) {
    case YamlNode::Kind::kNull:
      return nullptr;
    case YamlNode::Kind::kScalar:
      break;
    case YamlNode::Kind::kList: {
      Json list = Json::array();
      for (const YamlNode& item : node.items) list.push_back(NodeJson(item));
      return list;
    }
    case YamlNode::Kind::kMap: {
      Json map = Json::object();
      for (const Entry& entry : node.entries) map[entry.key.text] = NodeJson(entry.value);
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

// --- Sections ---

// "scaling.layers[]" as the name of a definition, which stands in references.
std::string DefinitionName(std::string path) {
  for (std::size_t at; (at = path.find("[]")) != std::string::npos;) path.replace(at, 2, ".entry");
  return path;
}

Json OneOfJson(const Names& names) {
  Json json = Json::array();
  for (const std::string& name : names) json.push_back({{"required", {name}}});
  return json;
}

std::string Listed(const Names& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

// The meaning, where the key belongs to, and a default that is no value.
std::string Description(const Key& key, const Section& section) {
  std::string text = key.meaning;
  if (!key.only_for.empty() && key.name != section.alternative) {
    text += " (" + section.discriminator + ": " + Listed(key.only_for);
    if (!key.only_for_second.empty())
      text += "; " + section.second_discriminator + ": " + Listed(key.only_for_second);
    text += ")";
  }
  const bool is_value = key.default_text.empty() || key.default_text == "{}" ||
                        key.default_text == "[]" || key.default_text.starts_with("required");
  return is_value ? text : text + ". Default: " + key.default_text;
}

// Makes one document. Every section becomes a definition under $defs and is referred to, so a table
// that stands in several places (formats, scaling) is written once.
class SchemaMaker {
 public:
  Json Document(const Section& root) {
    Json json = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                 {"title", "configuration of ada-train"}};
    json.update(SectionJson(root));
    json["$defs"] = definitions_;
    return json;
  }

 private:
  Json SectionJson(const Section& section) {
    Json properties = Json::object();
    Names required;
    for (const Key& key : section.keys) {
      properties[key.name] = KeyJson(key, section);
      if (key.required) required.push_back(key.name);
    }
    Json json = {{"type", "object"}, {"properties", properties}};
    if (!required.empty()) json["required"] = required;
    json["additionalProperties"] = false;
    if (!section.needs_one.keys.empty()) json["anyOf"] = OneOfJson(section.needs_one.keys);
    if (!section.not_both.keys.empty()) {
      json["not"] = {{"required", section.not_both.keys}};
    }
    const Json branches = section.starts_by_outer ? Json::array() : BranchesOf(section);
    if (!branches.empty()) json["allOf"] = branches;
    return json;
  }

  // The short form of a section (`device: cpu`) is one more value that its key may have; a map
  // there is the section itself.
  Json KeyJson(const Key& key, const Section& section) {
    Json json = {{"description", Description(key, section)}};
    std::vector<ValueSchema> schemas = key.schemas;
    if (key.section && !key.section->short_key.empty()) {
      const std::vector<ValueSchema>& brief = key.section->Find(key.section->short_key)->schemas;
      std::copy_if(brief.begin(), brief.end(), std::back_inserter(schemas),
                   [](const ValueSchema& schema) {
                     return schema.kind != ValueSchema::Kind::kMap &&
                            schema.kind != ValueSchema::Kind::kTextMap;
                   });
    }
    json.update(ValuesJson(schemas));
    if (key.default_text == "[]") json["default"] = Json::array();
    if (!key.default_text.empty() || key.required) return json;
    const std::optional<YamlNode> value = key.write();
    if (value) json["default"] = NodeJson(*value);
    return json;
  }

  // Maps with a marker are told from the last map by it.
  // With anyOf a validator reports the problems of every alternative; an if-then-else on the marker
  // reports those of the map that was meant.
  Json ValuesJson(const std::vector<ValueSchema>& schemas) {
    if (schemas.size() == 1) return ValueJson(schemas.front());
    if (!schemas.front().marker.empty()) {
      const std::vector<ValueSchema> rest(schemas.begin() + 1, schemas.end());
      return {{"if", {{"type", "object"}, {"required", {schemas.front().marker}}}},
              {"then", ValueJson(schemas.front())},
              {"else", ValuesJson(rest)}};
    }
    Json any = Json::array();
    for (const ValueSchema& schema : schemas) any.push_back(ValueJson(schema));
    return {{"anyOf", any}};
  }

  Json ValueJson(const ValueSchema& schema) {
    switch (schema.kind) {
      case ValueSchema::Kind::kInteger:
        return RangeJson("integer", schema.range);
      case ValueSchema::Kind::kNumber:
        return RangeJson("number", schema.range);
      case ValueSchema::Kind::kSwitch:
        return {{"type", "boolean"}};
      case ValueSchema::Kind::kWord:
        return {{"enum", schema.words}};
      case ValueSchema::Kind::kText:
        return TextJson(schema);
      case ValueSchema::Kind::kMap:
        return Reference(*schema.section());
      case ValueSchema::Kind::kTextMap:
        return {{"type", "object"},
                {"minProperties", 1},
                {"additionalProperties", TextJson(TextSchema(""))}};
      case ValueSchema::Kind::kList:
        break;
    }
    return ListJson(schema);
  }

  Json ListJson(const ValueSchema& schema) {
    Json json = {{"type", "array"}, {"items", ValuesJson(schema.items)}};
    if (schema.least > 0) json["minItems"] = schema.least;
    if (schema.most < std::numeric_limits<std::size_t>::max()) json["maxItems"] = schema.most;
    if (schema.distinct) json["uniqueItems"] = true;
    return json;
  }

  // Equal paths are equal tables.
  Json Reference(const Section& section) {
    const std::string name = DefinitionName(section.path);
    if (!definitions_.contains(name)) {
      definitions_[name] = nullptr;  // its place, before those that it refers to
      Json json = SectionJson(section);
      definitions_[name] = std::move(json);
    }
    return {{"$ref", "#/$defs/" + name}};
  }

  Json definitions_ = Json::object();
};

}  // namespace

std::string JsonSchema() {
  Config config;
  return SchemaMaker().Document(RootSection(config)).dump(2) + "\n";
}

}  // namespace ada::config
