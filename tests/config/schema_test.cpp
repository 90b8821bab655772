// The table of keys is complete, and configs/README.md and the JSON Schema say what it says.
#include "config/schema/schema.h"

#include <doctest/doctest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "config/load.h"

namespace ada::config {

namespace {

std::string ReadmeText() {
  std::ifstream file("configs/README.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string InCell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) {
    text.insert(at, "\\");
  }
  return text;
}

// The examples of the README: every ```yaml block.
std::vector<std::string> Examples(const std::string& readme) {
  const std::string fence = "```yaml\n";
  std::vector<std::string> examples;
  for (std::size_t at = 0; (at = readme.find(fence, at)) != std::string::npos;) {
    at += fence.size();
    const std::size_t end = readme.find("```", at);
    examples.push_back(readme.substr(at, end - at));
    at = end;
  }
  return examples;
}

using Json = nlohmann::ordered_json;

// What a reference of the schema stands for.
const Json& Resolved(const Json& schema, const Json& node) {
  if (!node.contains("$ref")) return node;
  const std::string start = "#/$defs/";
  const std::string name = node["$ref"];
  REQUIRE(name.starts_with(start));
  REQUIRE(schema["$defs"].contains(name.substr(start.size())));
  return schema["$defs"][name.substr(start.size())];
}

// The forms of a value that are maps: it is one, or one of several, or an `else`.
std::vector<Json> MapsOf(const Json& schema, const Json& value) {
  std::vector<Json> maps;
  const Json& node = Resolved(schema, value);
  if (node.contains("properties")) maps.push_back(node);
  if (maps.empty() && node.contains("anyOf")) {
    for (const Json& form : node["anyOf"]) {
      for (const Json& map : MapsOf(schema, form)) maps.push_back(map);
    }
  }
  if (node.contains("else")) {
    for (const Json& map : MapsOf(schema, node["else"])) maps.push_back(map);
  }
  return maps;
}

// What the entries of a list are, which may be one of several forms of a value.
Json Items(const Json& node) {
  if (node.contains("items")) return node["items"];
  for (const Json& form : node["anyOf"])
    if (form.contains("items")) return form["items"];
  return {};
}

// The schema of the key at "scaling.layers[].match"; null where there is none.
Json SchemaOf(const Json& schema, const std::string& path) {
  Json value = schema;
  std::stringstream parts(path);
  for (std::string part; std::getline(parts, part, '.');) {
    const bool list = part.ends_with("[]");
    if (list) part.resize(part.size() - 2);
    Json found;
    for (const Json& map : MapsOf(schema, value)) {
      if (map["properties"].contains(part)) found = map["properties"][part];
    }
    if (found.is_null()) return found;
    value = list ? Items(Resolved(schema, found)) : found;
  }
  return value;
}

// "; preset: deepspeed, megatron".
std::string Refined(const KeyInfo& key) {
  std::string names;
  for (const std::string& name : key.only_for_second) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "" : "; " + key.second_discriminator + ": " + names;
}

// The README's row of a key: | `key` | type | default | range | meaning |
std::string Row(const KeyInfo& key) {
  std::string meaning = key.meaning;
  if (!key.only_for.empty()) {
    std::string choices;
    for (const std::string& choice : key.only_for)
      if (choice != "layers") choices += (choices.empty() ? "" : ", ") + choice;
    if (!choices.empty()) meaning += " (" + key.discriminator + ": " + choices + Refined(key) + ")";
  }
  const std::string shown = key.default_text == "{}" ? "" : key.default_text;
  return "| `" + key.path + "` | " + key.type + " | " + InCell(shown) + " | " + InCell(key.range) +
         " | " + InCell(meaning) + " |";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("every key has a name of its own, a type and a meaning") {
    std::set<std::string> paths;
    for (const KeyInfo& key : AllKeys()) {
      CAPTURE(key.path);
      CHECK(paths.insert(key.path).second);
      CHECK_FALSE(key.type.empty());
      CHECK_FALSE(key.meaning.empty());
      CHECK_FALSE(key.default_text.empty());
    }
    CHECK(paths.size() > 110);
    for (const char* path : {"name", "data.limit.train", "model.layers[].kernel",
                             "scaling.layers[].match", "schedule.warmup.lr", "checkpoint.best"}) {
      CHECK(paths.contains(path));
    }
  }

  TEST_CASE("configs/README.md has the row of every key") {
    const std::string readme = ReadmeText();
    for (const KeyInfo& key : AllKeys()) {
      const std::string row = Row(key);
      CAPTURE(row);
      CHECK(readme.find(row) != std::string::npos);
    }
  }

  TEST_CASE("the JSON Schema has every key, with its meaning") {
    const Json schema = Json::parse(JsonSchema());
    for (const KeyInfo& key : AllKeys()) {
      CAPTURE(key.path);
      const Json found = SchemaOf(schema, key.path);
      REQUIRE_FALSE(found.is_null());
      CHECK(found["description"].get<std::string>().starts_with(key.meaning));
    }
    CHECK(SchemaOf(schema, "scaling.no_such_key").is_null());
    CHECK(SchemaOf(schema, "data.normalize.mean")["type"] == "array");
    CHECK(SchemaOf(schema, "log.what_if[].scaling.layers[].match")["minLength"] == 1);
  }

  TEST_CASE("the JSON Schema: some keys in full") {
    const Json schema = Json::parse(JsonSchema());
    CHECK(
        SchemaOf(schema, "data.batch_size").dump() ==
        R"({"description":"images, or sequences, per weight update; a multiple of train.accumulate",)"
        R"("type":"integer","minimum":1,"maximum":1000000,"default":128})");
    CHECK(
        SchemaOf(schema, "optimizer.momentum").dump() ==
        R"-({"description":"share of the last update kept (kind: sgd, rmsprop, muon). Default: 0; )-"
        R"-(muon: 0.95","type":"number","minimum":0,"exclusiveMaximum":1})-");
    CHECK(SchemaOf(schema, "scaling.u_min").dump() ==
          R"({"description":"magnitude below which a gradient counts as lost (policy: adaptive). )"
          R"(Default: the format's smallest subnormal","type":"number","exclusiveMinimum":0,)"
          R"("maximum":3.4028234663852886e+38})");
    CHECK(
        SchemaOf(schema, "log.statistics").dump() ==
        R"({"description":"tensors with rows in underflow.csv. Default: [dx, dy, dw], and operands )"
        R"(where a recipe or precision rounds them","type":"array","items":)"
        R"({"enum":["y","w","dx","dw","dy","update","operands"]},"uniqueItems":true})");
    CHECK(SchemaOf(schema, "model.layers[].stride")["anyOf"].dump() ==
          R"([{"type":"integer","minimum":1,"maximum":1000},{"type":"array","items":)"
          R"({"type":"integer","minimum":1,"maximum":1000},"minItems":2,"maxItems":2}])");
    CHECK(SchemaOf(schema, "log.dump").dump() ==
          R"({"description":"globs on the names of the layers that are dumped","type":"array",)"
          R"("items":{"type":["string","number","boolean"],"minLength":1},"minItems":1,)"
          R"("uniqueItems":true,"default":["*"]})");
    CHECK(schema["required"].dump() == R"(["data","model"])");
  }

  TEST_CASE("the examples of configs/README.md load") {
    const std::vector<std::string> examples = Examples(ReadmeText());
    CHECK(examples.size() >= 10);
    for (std::string example : examples) {
      CAPTURE(example);
      for (const std::string section :
           {"data: {dataset: synthetic}\n", "model: {zoo: lenet}\n", "optimizer: {lr: 0.1}\n"}) {
        const std::string key = section.substr(0, section.find(':') + 1);
        if (!example.starts_with(key) && example.find("\n" + key) == std::string::npos) {
          example += section;
        }
      }
      CHECK_NOTHROW(LoadText(example, "example.yaml", {}));
    }
  }
}

}  // namespace ada::config
