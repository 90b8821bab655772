// The keys of one layer of `model.layers`: those that its kind knows.
#include <algorithm>
#include <cctype>

#include "config/sections/sections.h"

namespace ada::config {
namespace {

const Names kKinds = {"conv2d",          "linear", "batch_norm", "relu",    "max_pool", "avg_pool",
                      "global_avg_pool", "add",    "flatten",    "dropout", "shortcut", "scale"};

constexpr char kLayerNamePattern[] = "^(?!(loss|input)$)[A-Za-z0-9_.{}-]+$";

std::string RefuseLayerName(std::string& name) {
  const bool good = std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '.' || c == '-' || c == '{' || c == '}';
  });
  if (!good) return "a layer's name has letters, digits, '_', '-' and '.' only";
  if (name == "loss" || name == "input")
    return "'" + name + "' is taken (the images, the loss); choose another";
  return "";
}

void CheckLayer(const LayerConfig& layer, const YamlNode& map, const ReadContext& context) {
  const auto add = [&](const char* key, const std::string& message) {
    const YamlNode* value = map.Find(key);
    context.problems.Add(value ? *value : context.key, Join(context.path, key), message);
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

}  // namespace

Section LayerSection(LayerConfig& layer) {
  const Names convolution = {"conv2d"};
  const Names windows = {"conv2d", "max_pool", "avg_pool"};
  Section section;
  section.path = "model.layers[]";
  section.discriminator = "kind";
  section.choices = kKinds;
  section.where = &layer.where;
  section.keys = {
      Text("name", layer.name,
           "its name in logs and checkpoints; {i} in a repeat block is 1, 2, ...", RefuseLayerName)
          .Fits(kLayerNamePattern)
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
  section.check = [&layer](const YamlNode& map, const ReadContext& context) {
    const bool pool = layer.kind == "max_pool" || layer.kind == "avg_pool";
    if (pool && !map.Find("stride")) layer.stride = layer.kernel;
    CheckLayer(layer, map, context);
  };
  return section;
}

}  // namespace ada::config
