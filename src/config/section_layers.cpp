// The keys of one layer of `model.layers`, and the list itself with its `repeat` blocks.
#include <algorithm>
#include <cctype>

#include "config/sections.h"
#include "core/text.h"

namespace ada::config {
namespace {

constexpr std::size_t kLayerLimit = 10'000;
const Names kKinds = {"conv2d",          "linear", "batch_norm", "relu",    "max_pool", "avg_pool",
                      "global_avg_pool", "add",    "flatten",    "dropout", "shortcut", "scale"};

std::string RefuseLayerName(std::string& name) {
  const bool good = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '{' || c == '}';
  });
  if (!good) return "a layer's name has letters, digits, '_', '-' and '.' only";
  if (name == "loss" || name == "input")
    return "'" + name + "' is taken (the images, the loss); choose another";
  return "";
}

void CheckLayer(const LayerConfig& layer, const YamlNode& map, const Reading& reading) {
  const auto add = [&](const char* key, const std::string& message) {
    const YamlNode* value = map.Find(key);
    reading.problems.Add(value ? *value : reading.key, Join(reading.path, key), message);
  };
  if (layer.kind == "conv2d" && layer.channels % layer.groups != 0) {
    add("groups", "must divide channels, " + std::to_string(layer.channels));
  }
  if (layer.kind == "add" && map.Find("inputs") && layer.inputs.size() < 2) {
    add("inputs", "an add joins two layers or more; got " + std::to_string(layer.inputs.size()));
  }
  if (layer.kind != "add" && layer.inputs.size() > 1) {
    add("inputs", "a " + layer.kind + " has one input; got " + std::to_string(layer.inputs.size()));
  }
  if (layer.kind != "max_pool" && layer.kind != "avg_pool") return;
  for (std::size_t i = 0; i < 2; ++i) {
    if (2 * layer.padding[i] > layer.kernel[i]) {
      add("padding", "at most half the kernel; got " + std::to_string(layer.padding[i]) + " of " +
                         std::to_string(layer.kernel[i]));
      return;
    }
  }
}

std::string WithIndex(std::string text, int index) {
  for (std::size_t at; (at = text.find("{i}")) != std::string::npos;) {
    text.replace(at, 3, std::to_string(index));
  }
  return text;
}

// Replaces {i} in the layer's name and inputs.
YamlNode Numbered(YamlNode layer, int index) {
  if (Entry* name = layer.FindEntry("name")) name->value.text = WithIndex(name->value.text, index);
  if (Entry* inputs = layer.FindEntry("inputs")) {
    for (YamlNode& input : inputs->value.items) input.text = WithIndex(input.text, index);
  }
  return layer;
}

class LayerReader {
 public:
  LayerReader(std::vector<LayerConfig>& layers, const Reading& reading)
      : layers_(layers), reading_(reading), path_(reading.path + "[]") {}

  void ReadList(const YamlNode& list) {
    for (const YamlNode& item : list.items) {
      if (item.kind == YamlNode::Kind::kMap && item.FindEntry("repeat")) {
        ReadRepeat(item);
      } else {
        ReadLayer(item);
      }
    }
  }

 private:
  void Refuse(const YamlNode& at, const std::string& key, const std::string& message) {
    reading_.problems.Add(at, Join(path_, key), message);
  }

  void ReadRepeat(const YamlNode& block) {
    for (const Entry& entry : block.entries) {
      const std::string& key = entry.key.text;
      if (key == "repeat" || key == "layers") continue;
      Refuse(entry.key, key, "a repeat block has the keys repeat and layers only");
    }
    long long count = 0;
    const YamlNode& times = *block.Find("repeat");
    const std::string refusal = ReadInteger(times, FromTo(1, 1000), count);
    if (!refusal.empty()) Refuse(times, "repeat", refusal);
    const YamlNode* inner = block.Find("layers");
    if (!inner || inner->kind != YamlNode::Kind::kList) {
      const YamlNode& at = inner ? *inner : block;
      Refuse(at, "layers", "expected a list of layers to repeat");
      return;
    }
    for (const YamlNode& item : inner->items) {
      if (item.kind != YamlNode::Kind::kMap || !item.FindEntry("repeat")) continue;
      Refuse(item, "repeat", "a repeat block cannot stand in another");
      return;
    }
    const std::size_t problems = reading_.problems.count();
    for (int i = 1; i <= count; ++i) {
      for (const YamlNode& item : inner->items) {
        if (!ReadLayer(Numbered(item, i))) return;
      }
      if (reading_.problems.count() > problems) {  // the next rounds would only repeat them
        complete_ = false;
        return;
      }
    }
  }

  // False where nothing more should be read.
  bool ReadLayer(const YamlNode& item) {
    if (layers_.size() >= kLayerLimit) {
      if (layers_.size() == kLayerLimit) Refuse(item, "", "more than 10000 layers");
      return false;
    }
    LayerConfig layer;
    ReadSection(item, LayerSection(layer), {reading_.problems, path_, item});
    CheckNames(layer, item);
    layers_.push_back(std::move(layer));
    return true;
  }

  void CheckNames(const LayerConfig& layer, const YamlNode& item) {
    const YamlNode* inputs = item.Find("inputs");
    for (std::size_t i = 0; inputs && i < layer.inputs.size(); ++i) {
      const std::string& input = layer.inputs[i];
      if (!complete_ || std::find(names_.begin(), names_.end(), input) != names_.end()) continue;
      const std::string nearest = NearestName(input, names_);
      const std::string hint = nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
      Refuse(i < inputs->items.size() ? inputs->items[i] : *inputs, "inputs",
             "no layer before this one is called '" + input + "'" + hint);
    }
    if (layer.name.empty()) return;
    if (std::find(names_.begin(), names_.end(), layer.name) != names_.end()) {
      Refuse(*item.Find("name"), "name", "a second layer called '" + layer.name + "'");
    }
    names_.push_back(layer.name);
  }

  std::vector<LayerConfig>& layers_;
  const Reading& reading_;
  std::string path_;
  Names names_ = {"input"};  // the images
  bool complete_ = true;     // false: names may be missing
};

}  // namespace

Section LayerSection(LayerConfig& layer) {
  const Names convolution = {"conv2d"};
  const Names windows = {"conv2d", "max_pool", "avg_pool"};
  Section section;
  section.path = "model.layers[]";
  section.chooser = "kind";
  section.choices = kKinds;
  section.where = &layer.where;
  section.keys = {
      Text("name", layer.name,
           "its name in logs and checkpoints; {i} in a repeat block is 1, 2, ...", RefuseLayerName)
          .Required(),
      WordText("kind", layer.kind, kKinds, "what it computes").Required(),
      TextList("inputs", layer.inputs, {}, "names of earlier layers; `input`: the images")
          .Default("the layer before")
          .RequiredFor({"add"}),
      Integer("channels", layer.channels, FromTo(1, 1'000'000), "output channels")
          .For({"conv2d", "shortcut"})
          .RequiredFor({"conv2d", "shortcut"}),
      Integer("features", layer.features, FromTo(1, 1'000'000), "outputs")
          .For({"linear"})
          .RequiredFor({"linear"}),
      Pair("kernel", layer.kernel, FromTo(1, 1000), "window").For(windows).RequiredFor(windows),
      Pair("stride", layer.stride, FromTo(1, 1000), "step of the window")
          .For({"conv2d", "max_pool", "avg_pool", "shortcut"})
          .Default("1; pooling: the kernel"),
      Pair("padding", layer.padding, FromTo(0, 1000),
           "zeros on every side (max_pool: ignored cells)")
          .For(windows),
      Pair("dilation", layer.dilation, FromTo(1, 1000), "spacing of the kernel").For(convolution),
      Integer("groups", layer.groups, FromTo(1, 1'000'000), "groups of channels").For(convolution),
      Switch("bias", layer.bias, "add a trained constant per output").For({"conv2d", "linear"}),
      Number("eps", layer.eps, Above(0), "added to the variance").For({"batch_norm"}),
      Number("momentum", layer.momentum, FromTo(0, 1),
             "weight of a new batch in running statistics")
          .For({"batch_norm"}),
      Number("rate", layer.rate, FromBelow(0, 1), "share of values set to zero").For({"dropout"}),
  };
  for (Key& key : section.keys) {
    if (key.name == "inputs") {  // unset unless given
      key.write = [&layer, write = key.write]() -> std::optional<YamlNode> {
        return layer.inputs.empty() ? std::nullopt : write();
      };
    }
    if (key.name == "channels" || key.name == "features" || key.name == "kernel") {
      key.default_text = "required";
    }
  }
  section.check = [&layer](const YamlNode& map, const Reading& reading) {
    const bool pool = layer.kind == "max_pool" || layer.kind == "avg_pool";
    if (pool && !map.Find("stride")) layer.stride = layer.kernel;
    CheckLayer(layer, map, reading);
  };
  return section;
}

Key LayersKey(std::vector<LayerConfig>& layers) {
  static LayerConfig example;
  Key key = MakeKey("layers", "list of maps",
                    "a network of one's own, in order; {repeat: N, layers: [...]} repeats a block");
  key.default_text = "required without `zoo`";
  key.section = std::make_shared<Section>(LayerSection(example));
  key.read = [&layers](const YamlNode& node, const Reading& reading) {
    if (node.kind != YamlNode::Kind::kList || node.items.empty()) {
      reading.problems.Add(node, reading.path,
                           node.kind == YamlNode::Kind::kList
                               ? "expected at least one layer; got an empty list"
                               : Expected("a list of layers", node));
      return;
    }
    LayerReader(layers, reading).ReadList(node);
  };
  key.write = [&layers]() -> std::optional<YamlNode> {
    if (layers.empty()) return std::nullopt;
    std::vector<YamlNode> items;
    for (LayerConfig& layer : layers) items.push_back(WriteSection(LayerSection(layer)));
    return List(std::move(items));
  };
  return key;
}

}  // namespace ada::config
