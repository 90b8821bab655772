// The schemas that the JSON Schema is made of admit what the reader accepts, and nothing else:
// every key of the tables reads a pool of values at and beside the ends of its ranges.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "config/keys/scalars.h"
#include "config/sections/sections.h"

namespace ada::config {

namespace {

constexpr int kDeepest = 8;
const std::set<std::string> kByZoo = {"layers", "hidden", "width"};

YamlNode Quoted(const std::string& text) {
  YamlNode node = Scalar(text);
  node.quoted = true;
  return node;
}

// Whether one of the schemas admits the value; written from what the schemas mean, not from the
// reader.
bool Admits(const std::vector<ValueSchema>& schemas, const YamlNode& node);

bool AdmitsNumber(const ValueSchema& schema, const YamlNode& node) {
  static const std::regex kWhole("[-+]?(0|[1-9][0-9]*)");
  static const std::regex kNumber("[-+]?(0|[1-9][0-9]*)(\\.[0-9]+)?(e[-+]?[0-9]+)?");
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return false;
  const std::regex& spelling = schema.kind == ValueSchema::Kind::kInteger ? kWhole : kNumber;
  return std::regex_match(node.text, spelling) && schema.range.Contains(std::stod(node.text));
}

bool AdmitsText(const ValueSchema& schema, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.text.empty()) return false;
  return schema.pattern.empty() || std::regex_search(node.text, std::regex(schema.pattern));
}

bool AdmitsList(const ValueSchema& schema, const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kList) return false;
  if (node.items.size() < schema.least || node.items.size() > schema.most) return false;
  for (std::size_t i = 0; i < node.items.size(); ++i) {
    if (!Admits(schema.items, node.items[i])) return false;
    const bool twice =
        std::any_of(node.items.begin(), node.items.begin() + static_cast<std::ptrdiff_t>(i),
                    [&](const YamlNode& other) { return other.text == node.items[i].text; });
    if (schema.distinct && twice) return false;
  }
  return true;
}

bool AdmitsOne(const ValueSchema& schema, const YamlNode& node) {
  const bool scalar = node.kind == YamlNode::Kind::kScalar;
  switch (schema.kind) {
    case ValueSchema::Kind::kInteger:
    case ValueSchema::Kind::kNumber:
      return AdmitsNumber(schema, node);
    case ValueSchema::Kind::kSwitch:
      return scalar && !node.quoted && (node.text == "true" || node.text == "false");
    case ValueSchema::Kind::kWord:
      return scalar &&
             std::find(schema.words.begin(), schema.words.end(), node.text) != schema.words.end();
    case ValueSchema::Kind::kText:
      return AdmitsText(schema, node);
    case ValueSchema::Kind::kMap:
    case ValueSchema::Kind::kTextMap:
      return false;  // the pool has no maps where maps are admitted
    case ValueSchema::Kind::kList:
      return AdmitsList(schema, node);
  }
  return false;
}

bool Admits(const std::vector<ValueSchema>& schemas, const YamlNode& node) {
  return std::any_of(schemas.begin(), schemas.end(),
                     [&](const ValueSchema& schema) { return AdmitsOne(schema, node); });
}

bool HasMap(const std::vector<ValueSchema>& schemas) {
  return std::any_of(schemas.begin(), schemas.end(), [](const ValueSchema& schema) {
    return schema.kind == ValueSchema::Kind::kMap || HasMap(schema.items);
  });
}

// The words of the schemas, in quotes too, and numbers at and beside the ends of their ranges.
void AddSamples(const std::vector<ValueSchema>& schemas, std::vector<YamlNode>& pool) {
  for (const ValueSchema& schema : schemas) {
    for (const std::string& word : schema.words) {
      pool.push_back(Scalar(word));
      pool.push_back(Quoted(word));
    }
    const bool number =
        schema.kind == ValueSchema::Kind::kInteger || schema.kind == ValueSchema::Kind::kNumber;
    for (const double end : {schema.range.low, schema.range.high}) {
      if (!number || !std::isfinite(end)) continue;
      if (schema.kind == ValueSchema::Kind::kNumber) {
        for (const double to : {-INFINITY, INFINITY}) {
          const double beside = std::nextafter(end, to);  // subnormal beside 0: no text reads so
          if (std::fabs(beside) > 1e-300) pool.push_back(Scalar(NumberText(beside)));
        }
        pool.push_back(Scalar(NumberText(end)));
      } else if (std::fabs(end) < 1e15) {
        for (const int step : {-1, 0, 1}) {
          pool.push_back(Scalar(std::to_string(static_cast<long long>(end) + step)));
        }
      }
    }
    AddSamples(schema.items, pool);
  }
}

std::vector<YamlNode> PoolOf(const Key& key) {
  std::vector<YamlNode> pool;
  for (const char* text :
       {"0",        "1",      "-1",     "2",       "0.5",          "1e-3",     "1e30",
        "-1e30",    "true",   "false",  "x",       "no_such_word", "a/b",      ".",
        "..",       "...",    "a b",    "a,b",     "loss",         "input",    "losses",
        "b{i}.c-1", "cuda:0", "cuda:9", "cuda:99", "cuda:255",     "cuda:256", "cuda:1000",
        "cuda:",    "cuda:x", "*"}) {
    pool.push_back(Scalar(text));
  }
  AddSamples(key.schemas, pool);
  for (const char* text : {"1", "true", "x", "", "a\"b", "a\nb"}) pool.push_back(Quoted(text));
  const std::vector<YamlNode> scalars = pool;
  for (const YamlNode& scalar : scalars) {
    pool.push_back(List({scalar}));
    pool.push_back(List({scalar, scalar}));
    pool.push_back(List({scalar, scalars.front()}));
    pool.push_back(List({scalar, scalar, scalar}));
  }
  pool.push_back(List({}));
  pool.push_back(List({List({})}));
  pool.emplace_back();  // null
  if (!HasMap(key.schemas)) {
    YamlNode map;
    map.kind = YamlNode::Kind::kMap;
    pool.push_back(map);
    pool.push_back(List({map}));
  }
  return pool;
}

class Walk {
 public:
  int keys = 0, accepted = 0, refused = 0;

  void Section(const config::Section& section, int depth) {
    REQUIRE(depth < kDeepest);
    for (const Key& key : section.keys) {
      CAPTURE(section.path);
      CAPTURE(key.name);
      CHECK_FALSE(key.schemas.empty());
      ++keys;
      // These hang on the network that `zoo` names: a schema by itself admits each one's form.
      const bool by_zoo = section.path == "model" && kByZoo.contains(key.name);
      // So does a preset on its policy.
      const bool by_policy = section.path.ends_with("scaling") && key.name == "preset";
      if (key.read && !by_zoo && !by_policy)
        Compare(key);  // else: of a repeat block, which model.layers reads
      Schemas(key.schemas, depth);
    }
  }

 private:
  void Schemas(const std::vector<ValueSchema>& schemas, int depth) {
    for (const ValueSchema& schema : schemas) {
      if (schema.section) Section(*schema.section(), depth + 1);
      Schemas(schema.items, depth);
    }
  }

  void Compare(const Key& key) {
    for (const YamlNode& node : PoolOf(key)) {
      Problems problems("pool.yaml", {});
      const YamlNode place = Scalar(key.name);
      key.read(node, {problems, key.name, place});
      const bool reads = problems.count() == 0;
      const std::string shown = FlowText(node);
      CAPTURE(shown);
      CHECK(reads == Admits(key.schemas, node));
      ++(reads ? accepted : refused);
    }
  }
};

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the schemas of every key admit what its reader accepts") {
    Config config;
    Walk walk;
    walk.Section(RootSection(config), 0);
    CHECK(walk.keys > 200);
    CHECK(walk.accepted > 1000);
    CHECK(walk.refused > 10000);
  }

  TEST_CASE("whole numbers without a limit end where 64 bits do") {
    const ValueSchema schema = IntegerSchema(AtLeast(0));
    CHECK(schema.range.Contains(0x1p62));
    CHECK_FALSE(schema.range.Contains(0x1p63));
    CHECK(schema.range.Contains(0));
    CHECK_FALSE(schema.range.Contains(-1));
  }
}

}  // namespace ada::config
