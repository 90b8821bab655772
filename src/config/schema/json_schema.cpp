// Walks the tables of keys: every section becomes a definition, every choice in it an if-then.
#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include "config/schema/json_schema_parts.h"
#include "config/schema/schema.h"
#include "config/sections/sections.h"

namespace ada::config {
namespace {

using Json = SchemaJson;

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
    if (value) json["default"] = ValueOf(*value);
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
