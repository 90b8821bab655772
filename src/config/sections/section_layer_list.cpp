// The key `model.layers`: layer by layer, with `repeat` blocks expanded while they are read.
// Each entry is read by LayerSection; this adds what concerns the list: names that are unique,
// inputs that are earlier layers, and blocks that are written once and stand several times.
#include <algorithm>

#include "config/sections/sections.h"
#include "io/text.h"

namespace ada::config {
namespace {

// Repeats could ask for a network that no memory holds.
constexpr std::size_t kLayerLimit = 10'000;
Range RepeatRange() { return FromTo(1, 1000); }

std::string WithIndex(std::string text, int index) {
  for (std::size_t at; (at = text.find("{i}")) != std::string::npos;) {
    text.replace(at, 3, std::to_string(index));
  }
  return text;
}

// Replaces {i} in the layer's name, inputs, pool and weight_of.
YamlNode Numbered(YamlNode layer, int index) {
  if (Entry* name = layer.FindEntry("name")) name->value.text = WithIndex(name->value.text, index);
  for (const char* key : {"pool", "weight_of"})
    if (Entry* other = layer.FindEntry(key))
      other->value.text = WithIndex(other->value.text, index);
  if (Entry* inputs = layer.FindEntry("inputs")) {
    for (YamlNode& input : inputs->value.items) input.text = WithIndex(input.text, index);
  }
  return layer;
}

// Reads one list and is then dropped. Names are collected on the way, so an input may only name a
// layer that stands before; that makes the network a graph without cycles.
class LayerReader {
 public:
  LayerReader(std::vector<LayerConfig>& layers, const ReadContext& context)
      : layers_(layers), reading_(context), path_(context.path + "[]") {}

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
    const std::string refusal = ReadInteger(times, RepeatRange(), count);
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
      // Layers of the rounds that were left out are unknown, so complete_ keeps inputs that name
      // them from being reported.
      if (reading_.problems.count() > problems) {  // the next rounds would only repeat them
        complete_ = false;
        return;
      }
    }
  }

  // False where nothing more should be read.
  bool ReadLayer(const YamlNode& item) {
    if (layers_.size() >= kLayerLimit) {
      // The limit is told once, at the first layer beyond it, and the rest is not read.
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
    // An item that was refused is not among `layer.inputs`, so names are taken from the list
    // itself.
    for (std::size_t i = 0; inputs && !layer.inputs.empty() && i < inputs->items.size(); ++i) {
      std::string input;
      if (!complete_ || !ReadText(inputs->items[i], input).empty()) continue;
      if (std::find(names_.begin(), names_.end(), input) != names_.end()) continue;
      const std::string nearest = NearestName(input, names_);
      const std::string hint = nearest.empty() ? "" : "; did you mean '" + nearest + "'?";
      Refuse(inputs->items[i], "inputs",
             "no layer before this one is called '" + input + "'" + hint);
    }
    if (layer.name.empty()) return;
    if (std::find(names_.begin(), names_.end(), layer.name) != names_.end()) {
      Refuse(*item.Find("name"), "name", "a second layer called '" + layer.name + "'");
    }
    names_.push_back(layer.name);
  }

  std::vector<LayerConfig>& layers_;
  const ReadContext& reading_;
  std::string path_;
  Names names_ = {"input"};  // the images
  bool complete_ = true;     // false: names may be missing
};

// One layer, for the list of forms.
std::shared_ptr<Section> ExampleLayer() { return ExampleSection<LayerConfig>(LayerSection); }

// A block `{repeat: N, layers: [...]}` as LayerReader reads it, likewise.
std::shared_ptr<Section> ExampleBlock() {
  Key times = MakeKey("repeat", "integer", "copies of the block; {i} is 1, 2, ... in their names");
  times.schemas = {IntegerSchema(RepeatRange())};
  Key layers = MakeKey("layers", "list of maps", "the layers of the block");
  // Only layers: the reader refuses a block within a block.
  layers.schemas = {ListSchema({MapSchema(ExampleLayer)})};
  auto block = std::make_shared<Section>();
  block->path = "model.layers[].repeat";
  for (Key* key : {&times, &layers}) block->keys.push_back(std::move(key->Required()));
  return block;
}

}  // namespace

Key LayersKey(std::vector<LayerConfig>& layers) {
  Key key = MakeKey("layers", "list of maps",
                    "a network of one's own, in order; {repeat: N, layers: [...]} repeats a block");
  key.default_text = "required without `zoo` or `file`";
  key.section = ExampleLayer();
  key.schemas = {ListSchema({MapSchema(ExampleBlock, "repeat"), MapSchema(ExampleLayer)}, 1)};
  key.read = [&layers](const YamlNode& node, const ReadContext& context) {
    if (node.kind != YamlNode::Kind::kList || node.items.empty()) {
      context.problems.Add(node, context.path,
                           node.kind == YamlNode::Kind::kList
                               ? "expected at least one layer; got an empty list"
                               : Expected("a list of layers", node));
      return;
    }
    LayerReader(layers, context).ReadList(node);
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
