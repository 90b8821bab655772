// Configurations drawn at random from the very tables by which they are read, so that a new key is
// tried without a word here. Networks and images are tiny: a run takes milliseconds.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <random>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "config/sections/sections.h"
#include "error.h"
#include "graph/network/shapes.h"
#include "io/text.h"
#include "run/assemble/assemble.h"
#include "train/random_limits.h"

namespace ada::testing {

class RandomConfiguration {
 public:
  explicit RandomConfiguration(std::uint64_t seed) : engine_(seed) {
    density_ = std::vector<double>{0.05, 0.2, 0.4, 0.8}[Below(4)];
  }

  // A document that is read without a problem. Each section is drawn anew until it fits to those
  // before it.
  std::string Text() {
    config::Config defaults;
    const config::Section root = config::RootSection(defaults);
    document_.kind = config::YamlNode::Kind::kMap;
    for (const char* first : {"data", "model"}) DrawUntilGood(*root.Find(first));
    for (const config::Key& key : root.keys)
      if (!document_.Find(key.name) && Wanted(key, key.name)) DrawUntilGood(key);
    return config::DocumentText(document_);
  }

 private:
  using Node = config::YamlNode;

  std::uint64_t Below(std::uint64_t n) { return engine_() % n; }
  double Unit() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }
  bool Chance(double probability) { return Unit() < probability; }
  template <class T>
  const T& OneOf(const std::vector<T>& all) {
    return all[Below(all.size())];
  }

  static Node Map() {
    Node map;
    map.kind = Node::Kind::kMap;
    return map;
  }

  // Whether the document, with the model that stands for one that is still to come, has no problem:
  // neither its keys nor its images and shapes.
  static bool Good(Node document, config::Config& config) {
    if (!document.Find("model")) {
      Node model = Map();
      config::Append(model, "zoo", config::Scalar("mlp"));
      config::Append(document, "model", model);
    }
    config::Problems problems("random.yaml", {});
    const Node key = config::Scalar("");
    config::ReadSection(document, config::RootSection(config), {problems, "", key});
    if (problems.count() == 0) config::Complete(config, document, "random.yaml", problems);
    if (problems.count() > 0) return false;
    try {
      const data::DatasetInfo info = run::InspectData(config);
      graph::Resolve(config.model, {1, info.height, info.width, info.channels});
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  }

  void DrawUntilGood(const config::Key& key) {
    constexpr int kAttempts = 200;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      Node document = document_;
      std::optional<Node> value = Value(key.schemas, key.name, "");
      if (!value || value->entries.empty()) continue;
      if (key.name == "model") AddLayers(*value);
      config::Append(document, key.name, std::move(*value));
      config::Config config;
      if (!Good(document, config)) continue;
      document_ = std::move(document);
      return;
    }
  }

  // --- Values by their schemas. ---

  bool Wanted(const config::Key& key, const std::string& path) {
    if (Contains(kNotTried, path)) return false;
    return key.required || Contains(kAlways, path) || Chance(density_);
  }

  std::optional<Node> Value(const std::vector<config::ValueSchema>& schemas,
                            const std::string& path, const std::string& choice) {
    const config::ValueSchema& schema = OneOf(schemas);
    using Kind = config::ValueSchema::Kind;
    switch (schema.kind) {
      case Kind::kInteger:
      case Kind::kNumber:
        return Number(schema, path);
      case Kind::kSwitch:
        return config::Scalar(Chance(0.5) ? "true" : "false");
      case Kind::kWord: {
        const auto few = kFewWords.find(path);
        return config::Scalar(OneOf(few == kFewWords.end() ? schema.words : few->second));
      }
      case Kind::kText:
        return TextValue(schema);
      case Kind::kMap:
        return SectionValue(*schema.section(), choice);
      case Kind::kTextMap:
        return std::nullopt;  // it is about label images, which no random run has
      case Kind::kList:
        break;
    }
    return ListValue(schema, path, choice);
  }

  Node Number(const config::ValueSchema& schema, const std::string& path) {
    const bool whole = schema.kind == config::ValueSchema::Kind::kInteger;
    const auto small = kSmallNumbers.find(path);
    if (small != kSmallNumbers.end()) {
      const auto [low, high] = small->second;
      return config::Scalar(std::to_string(
          low + static_cast<int>(Below(static_cast<std::uint64_t>(high - low + 1)))));
    }
    for (;;) {
      double value = DrawNumber(schema.range);
      if (whole) value = std::trunc(value);
      if (!std::isfinite(value) || !schema.range.Contains(value)) continue;
      return config::Scalar(whole ? std::to_string(static_cast<long long>(value))
                                  : config::NumberText(value));
    }
  }

  // Ends of the range, their neighbors, usual numbers, and any magnitude.
  double DrawNumber(const config::Range& range) {
    static const std::vector<double> kUsual = {0,   1,    2,     3,   0.5,   0.1,    1e-3, 8,
                                               100, 1024, 65536, 0.9, 1e300, 1e-300, 1e-30};
    switch (Below(5)) {
      case 0:
        return Chance(0.5) ? range.low : range.high;
      case 1:
        return Chance(0.5) ? std::nextafter(range.low, INFINITY)
                           : std::nextafter(range.high, -INFINITY);
      case 2:
        return range.low + static_cast<double>(Below(5));
      case 3:
        return OneOf(kUsual);
      default:
        return (Chance(0.8) ? 1 : -1) * std::exp2((Unit() * 2 - 1) * (Chance(0.5) ? 4 : 140));
    }
  }

  std::optional<Node> TextValue(const config::ValueSchema& schema) {
    static const std::vector<std::string> kTexts = {"*",   "l*", "l1", "?", "fc",   "conv*",
                                                    "x y", "1",  "-",  "é", "a{i}", "*.weight"};
    const std::string& text = OneOf(kTexts);
    if (!schema.pattern.empty() && !std::regex_search(text, std::regex(schema.pattern)))
      return std::nullopt;
    return config::TextNode(text);
  }

  std::optional<Node> ListValue(const config::ValueSchema& schema, const std::string& path,
                                const std::string& choice) {
    const std::size_t most = std::min<std::size_t>(schema.most, schema.least + 3);
    const std::size_t count = schema.least + Below(most - schema.least + 1);
    std::vector<Node> items;
    for (std::size_t i = 0; i < count; ++i) {
      std::optional<Node> item = Value(schema.items, path, choice);
      if (!item) return std::nullopt;
      items.push_back(std::move(*item));
    }
    return config::List(std::move(items));
  }

  // A map of the section's keys that fits its choices. `outer`: the choice of the section around.
  std::optional<Node> SectionValue(const config::Section& section, const std::string& outer) {
    Node map = Map();
    const std::string prefix = section.path.empty() ? "" : section.path + ".";
    std::string choice = section.chosen ? outer : section.default_choice;
    const std::string& discriminator = section.discriminator;
    if (!section.chosen && !discriminator.empty() && (choice.empty() || Chance(0.8))) {
      if (!section.alternative.empty() && Chance(0.8)) {
        choice = section.alternative;
      } else {
        const auto few = kFewWords.find(prefix + discriminator);
        choice = OneOf(few == kFewWords.end() ? section.choices : few->second);
        config::Append(map, discriminator, config::Scalar(choice));
      }
    }
    std::string second = section.default_second_choice;
    for (const config::Key& key : section.keys) {
      const std::string path = prefix + key.name;
      if (map.Find(key.name) || key.name == discriminator || key.name == section.alternative)
        continue;
      if (!choice.empty() && !section.Knows(key, choice)) continue;
      if (!key.only_for_second.empty() && !Contains(key.only_for_second, second)) continue;
      if (!Contains(key.required_for, choice) && !Wanted(key, path)) continue;
      std::optional<Node> value = Value(key.schemas, path, choice);
      if (!value) return std::nullopt;
      if (key.name == section.second_discriminator) second = value->text;
      config::Append(map, key.name, std::move(*value));
    }
    return map;
  }

  // --- A network whose shapes fit. ---

  // Where the model is no network of the zoo: layers, drawn one by one.
  void AddLayers(Node& model) {
    if (model.Find("zoo")) return;
    config::Config config;
    if (!Good(document_, config)) return;
    const data::SyntheticSpec& s = config.data.synthetic;
    const Shape image{1, s.height, s.width, s.channels};
    const Node* given = model.Find("classes");
    const std::string classes = given ? given->text : std::to_string(s.classes);
    Node last = Map();
    config::Append(last, "name", config::Scalar("fc"));
    config::Append(last, "kind", config::Scalar("linear"));
    config::Append(last, "features", config::Scalar(classes));
    std::vector<Node> layers;
    const std::uint64_t wanted = Below(9);
    for (int attempt = 0; attempt < 60 && layers.size() < wanted; ++attempt) {
      std::optional<Node> layer = Layer(layers.size());
      if (!layer) continue;
      layers.push_back(std::move(*layer));
      std::vector<Node> all = layers;
      all.push_back(last);
      if (!Resolves(std::move(all), image)) layers.pop_back();
    }
    layers.push_back(last);
    config::Append(model, "layers", config::List(std::move(layers)));
  }

  std::optional<Node> Layer(std::size_t index) {
    config::LayerConfig example;
    const std::string name = "l" + std::to_string(index);
    std::optional<Node> layer = SectionValue(config::LayerSection(example), "");
    if (!layer) return std::nullopt;
    layer->FindEntry("name")->value = config::Scalar(name);
    if (config::Entry* inputs = layer->FindEntry("inputs")) {
      std::vector<Node> names;
      const bool joins = layers::FindLayerKind(layer->Find("kind")->text)->joins;
      for (std::uint64_t i = 0; i < (joins ? 2 + Below(2) : 1); ++i) {
        const std::uint64_t from = Below(index + 1);
        names.push_back(config::Scalar(from == 0 ? "input" : "l" + std::to_string(from - 1)));
      }
      inputs->value = config::List(std::move(names));
    }
    if (!Chance(0.1) || layer->FindEntry("inputs")) return layer;
    layer->FindEntry("name")->value = config::Scalar(name + "_{i}");
    Node block = Map();
    config::Append(block, "repeat", config::Scalar(std::to_string(1 + Below(3))));
    config::Append(block, "layers", config::List({std::move(*layer)}));
    return block;
  }

  static bool Resolves(std::vector<Node> layers, const Shape& image) {
    Node model = Map();
    config::Append(model, "layers", config::List(std::move(layers)));
    config::Problems problems("random.yaml", {});
    const Node key = config::Scalar("");
    config::ModelConfig read;
    config::ReadSection(model, config::ModelSection(read), {problems, "model", key});
    if (problems.count() > 0) return false;
    try {
      graph::Resolve(read, image);
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  }

  std::mt19937_64 engine_;
  double density_;  // share of the keys that are given
  Node document_;
};

}  // namespace ada::testing
