// The table of keys is complete; configs/KEYS.md and the JSON Schema say what it says.
#include "config/schema/schema.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "config/load.h"

namespace ada::config {

namespace {

std::string TextOf(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// What a function gives on a thread of its own, where no test has read values into the tables.
template <class Function>
auto OnNewThread(Function function) {
  decltype(function()) result;
  std::thread([&] { result = function(); }).join();
  return result;
}

// The pages about configurations, one after the other.
std::string Pages() {
  std::string text;
  for (const auto& entry : std::filesystem::directory_iterator("configs")) {
    if (entry.path().extension() == ".md") text += TextOf(entry.path());
  }
  return text;
}

// The examples of the pages: every ```yaml block.
std::vector<std::string> Examples(const std::string& pages) {
  const std::string fence = "```yaml\n";
  std::vector<std::string> examples;
  for (std::size_t at = 0; (at = pages.find(fence, at)) != std::string::npos;) {
    at += fence.size();
    const std::size_t end = pages.find("```", at);
    examples.push_back(pages.substr(at, end - at));
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

// A map's path as "model.layers[]", and the name that a key has in it.
std::pair<std::string, std::string> Split(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string::npos) return {"The document", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

// What stands in backquotes after `start` in a line.
std::vector<std::string> Quoted(const std::string& line, std::size_t start = 0) {
  std::vector<std::string> words;
  for (std::size_t at = start; (at = line.find('`', at)) != std::string::npos;) {
    const std::size_t end = line.find('`', at + 1);
    words.push_back(line.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return words;
}

// The page of keys as a reader goes through it: lines below headings, and what they refer to.
class KeysPage {
 public:
  explicit KeysPage(const std::string& text) {
    std::stringstream lines(text);
    std::string heading, condition;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("## ")) heading = line.substr(3), condition.clear();
      if (line.starts_with("With ")) condition = line;
      if (line.starts_with("* `")) {
        const std::string name = Quoted(line).front();
        const std::size_t own = line.rfind(". With `");
        const std::string choices = own == std::string::npos ? condition : line.substr(own);
        CHECK(keys_[heading].emplace(name, choices + '\n' + line).second);
      }
      if (line.starts_with("* As in `")) {
        const std::vector<std::string> words = Quoted(line);
        for (std::size_t i = 1; i < words.size(); ++i) {
          CHECK(referred_[heading].emplace(words[i], words[0]).second);
        }
      }
    }
  }

  // The line of a key with the line "With ..." above it; empty where there is none.
  std::string LineOf(const std::string& path) const {
    const auto [map, name] = Split(path);
    const std::string heading = Written(map, name);
    const auto referred = referred_.find(heading);
    if (referred != referred_.end() && referred->second.contains(name)) {
      const std::string& other = referred->second.at(name);
      return LineOf((other == "The document" ? "" : other + ".") + name);
    }
    const auto keys = keys_.find(heading);
    return keys != keys_.end() && keys->second.contains(name) ? keys->second.at(name) : "";
  }

 private:
  // The heading below which a map's keys are written out; nothing where `name` is not among them.
  std::string Written(const std::string& map, const std::string& name) const {
    if (keys_.contains(map) || referred_.contains(map)) return map;
    const bool list = map.ends_with("[]");
    const auto [outer, own] = Split(list ? map.substr(0, map.size() - 2) : map);
    if (outer == "The document") return "";
    const std::string heading = Written(outer, own);
    const std::string line = LineOf(heading + "." + own);
    const std::size_t reference = line.find(" Keys: those of `");
    if (reference == std::string::npos) {
      const std::string moved = heading + "." + own + (list ? "[]" : "");
      return moved == map ? "" : Written(moved, name);
    }
    const std::vector<std::string> words = Quoted(line, reference);
    if (std::find(words.begin() + 1, words.end(), name) != words.end()) return "";
    return Written(words.front(), name);
  }

  std::map<std::string, std::map<std::string, std::string>> keys_;      // by heading
  std::map<std::string, std::map<std::string, std::string>> referred_;  // "As in": by heading
};

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

  TEST_CASE("configs/KEYS.md is what `ada-train schema --markdown` prints") {
    CHECK(TextOf("configs/KEYS.md") == OnNewThread(KeysMarkdown));
  }

  TEST_CASE("the page of keys has every key, with its type, range, default and meaning") {
    const KeysPage page(TextOf("configs/KEYS.md"));
    for (const KeyInfo& key : OnNewThread(AllKeys)) {
      CAPTURE(key.path);
      const std::string line = page.LineOf(key.path);
      REQUIRE(line != "");
      CHECK(line.find("` (" + key.type) != std::string::npos);
      CHECK(line.find(key.meaning) != std::string::npos);
      if (key.type != "boolean") CHECK(line.find(key.range) != std::string::npos);
      const std::string& value = key.default_text;
      if (value != "{}" && value != "none" && !value.starts_with("as ")) {
        CHECK(line.find(value) != std::string::npos);
      }
      const std::string condition = line.substr(0, line.find('\n'));
      for (const std::vector<std::string>& choices : {key.only_for, key.only_for_second}) {
        for (const std::string& choice : choices) {
          if (choice != "layers") CHECK(condition.find(choice) != std::string::npos);
        }
      }
    }
    CHECK(page.LineOf("scaling.no_such_key") == "");
    CHECK(page.LineOf("precision.layers[].operands.spared") == "");
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
    CHECK(SchemaOf(schema, "log.statistics").dump() ==
          R"({"description":"tensors with rows in underflow.csv. Default: [dx, dy, dw], operands )"
          R"(where a recipe or precision rounds them, y and w where `activations` and `weights` )"
          R"(have fewer than 16 bits","type":"array","items":)"
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

  TEST_CASE("the examples of the pages load") {
    const std::vector<std::string> examples = Examples(Pages());
    CHECK(examples.size() >= 25);
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
