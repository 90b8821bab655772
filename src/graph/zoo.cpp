// See zoo.h. ResNet for CIFAR: He et al., "Deep residual learning" (2016), section 4.2; VGG:
// Simonyan and Zisserman (2015), configurations A, B, D with batch norm; LeNet-5: LeCun et al.
// (1998).
#include "graph/zoo.h"

#include <array>
#include <cstdio>

#include "core/error.h"
#include "core/text.h"
#include "graph/shapes.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

// Appends layers; each starts from the defaults of the YAML.
class Stack {
 public:
  explicit Stack(const ModelConfig& model) : where_(model.where) {}

  LayerConfig& Add(const std::string& name, const char* kind) {
    LayerConfig& layer = layers_.emplace_back();
    layer.name = name;
    layer.kind = kind;
    layer.where = where_;
    return layer;
  }
  LayerConfig& Conv(const std::string& name, int channels, int kernel, int stride, int padding) {
    LayerConfig& layer = Add(name, "conv2d");
    layer.channels = channels;
    layer.kernel = {kernel, kernel};
    layer.stride = {stride, stride};
    layer.padding = {padding, padding};
    return layer;
  }
  // A convolution before batch norm has no bias: beta takes its place.
  LayerConfig& PlainConv(const std::string& name, int channels, int kernel, int stride) {
    LayerConfig& layer = Conv(name, channels, kernel, stride, kernel / 2);
    layer.bias = false;
    return layer;
  }
  void Linear(const std::string& name, int features) { Add(name, "linear").features = features; }
  void MaxPool(const std::string& name) {
    LayerConfig& layer = Add(name, "max_pool");
    layer.kernel = layer.stride = {2, 2};
  }
  const std::string& last() const { return layers_.back().name; }
  std::vector<LayerConfig> Take() { return std::move(layers_); }

 private:
  config::Location where_;
  std::vector<LayerConfig> layers_;
};

std::vector<LayerConfig> Mlp(const ModelConfig& model) {
  Stack net(model);
  int index = 1;
  for (const int features : model.hidden) {
    net.Linear("fc" + std::to_string(index), features);
    net.Add("relu" + std::to_string(index), "relu");
    ++index;
  }
  net.Linear("fc" + std::to_string(index), model.classes);
  return net.Take();
}

std::vector<LayerConfig> LeNet(const ModelConfig& model) {
  Stack net(model);
  net.Conv("conv1", 6, 5, 1, 2);
  net.Add("relu1", "relu");
  net.MaxPool("pool1");
  net.Conv("conv2", 16, 5, 1, 0);
  net.Add("relu2", "relu");
  net.MaxPool("pool2");
  net.Linear("fc1", 120);
  net.Add("relu3", "relu");
  net.Linear("fc2", 84);
  net.Add("relu4", "relu");
  net.Linear("fc3", model.classes);
  return net.Take();
}

// Brings `input` to the block's shape: the name of what `add` takes beside the block's own path.
std::string AddShortcut(Stack& net, const std::string& block, const std::string& input,
                        int channels, bool projection) {
  if (!projection) {
    LayerConfig& layer = net.Add(block + "shortcut", "shortcut");
    layer.inputs = {input};
    layer.channels = channels;
    layer.stride = {2, 2};
    return layer.name;
  }
  net.PlainConv(block + "shortcut.conv", channels, 1, 2).inputs = {input};
  net.Add(block + "shortcut.bn", "batch_norm");
  return net.last();
}

std::vector<LayerConfig> ResNet(const ModelConfig& model, int depth) {
  if (model.shortcut != "A" && model.shortcut != "B") {
    throw ConfigError(Place(model.where) + "model.shortcut: expected A or B, found '" +
                      model.shortcut + "'");
  }
  Stack net(model);
  net.PlainConv("conv1", 16, 3, 1);
  net.Add("bn1", "batch_norm");
  net.Add("relu1", "relu");
  const int blocks = (depth - 2) / 6;
  for (int stage = 1; stage <= 3; ++stage) {
    const int channels = 8 << stage;
    for (int index = 1; index <= blocks; ++index) {
      const std::string block =
          "stage" + std::to_string(stage) + ".block" + std::to_string(index) + ".";
      const bool smaller = stage > 1 && index == 1;
      std::string input = net.last();
      net.PlainConv(block + "conv1", channels, 3, smaller ? 2 : 1);
      net.Add(block + "bn1", "batch_norm");
      net.Add(block + "relu1", "relu");
      net.PlainConv(block + "conv2", channels, 3, 1);
      net.Add(block + "bn2", "batch_norm");
      if (smaller) input = AddShortcut(net, block, input, channels, model.shortcut == "B");
      net.Add(block + "add", "add").inputs = {block + "bn2", input};
      net.Add(block + "relu2", "relu");
    }
  }
  net.Add("pool", "global_avg_pool");
  net.Linear("fc", model.classes);
  return net.Take();
}

std::vector<LayerConfig> Vgg(const ModelConfig& model, const std::array<int, 5>& convolutions) {
  static constexpr std::array<int, 5> kChannels = {64, 128, 256, 512, 512};
  Stack net(model);
  for (int s = 0; s < 5; ++s) {
    const std::string stage = "stage" + std::to_string(s + 1) + ".";
    for (int i = 1; i <= convolutions[s]; ++i) {
      const std::string index = std::to_string(i);
      net.PlainConv(stage + "conv" + index, kChannels[s], 3, 1);
      net.Add(stage + "bn" + index, "batch_norm");
      net.Add(stage + "relu" + index, "relu");
    }
    net.MaxPool(stage + "pool");
  }
  if (model.dropout > 0) net.Add("dropout", "dropout").rate = model.dropout;
  net.Linear("fc", model.classes);
  return net.Take();
}

struct Entry {
  std::string name;
  Shape usual_input;
  const char* keys;
  std::vector<LayerConfig> (*expand)(const ModelConfig&);
};

template <int depth>
std::vector<LayerConfig> ResNetOf(const ModelConfig& model) {
  return ResNet(model, depth);
}

const std::vector<Entry>& Entries() {
  static const Shape kMnist{1, 28, 28, 1}, kCifar{1, 32, 32, 3};
  static const std::vector<Entry> entries = {
      {"mlp", kMnist, "hidden", Mlp},
      {"lenet", kMnist, "", LeNet},
      {"resnet20", kCifar, "shortcut", ResNetOf<20>},
      {"resnet32", kCifar, "shortcut", ResNetOf<32>},
      {"resnet44", kCifar, "shortcut", ResNetOf<44>},
      {"resnet56", kCifar, "shortcut", ResNetOf<56>},
      {"resnet110", kCifar, "shortcut", ResNetOf<110>},
      {"vgg11", kCifar, "dropout",
       [](const ModelConfig& model) {
         return Vgg(model, {1, 1, 2, 2, 2});
       }},
      {"vgg13", kCifar, "dropout",
       [](const ModelConfig& model) {
         return Vgg(model, {2, 2, 2, 2, 2});
       }},
      {"vgg16", kCifar, "dropout",
       [](const ModelConfig& model) {
         return Vgg(model, {2, 2, 3, 3, 3});
       }},
  };
  return entries;
}

}  // namespace

const std::vector<std::string>& ZooNames() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> result;
    for (const Entry& entry : Entries()) result.push_back(entry.name);
    return result;
  }();
  return names;
}

std::vector<LayerConfig> ExpandZoo(const ModelConfig& model) {
  for (const Entry& entry : Entries()) {
    if (entry.name == model.zoo) return entry.expand(model);
  }
  throw ConfigError(Place(model.where) + "model.zoo: unknown model '" + model.zoo + "'" +
                    Nearest(model.zoo, ZooNames()) + "; `ada-train models` lists them");
}

std::vector<std::string> ListModels() {
  std::vector<std::string> lines;
  for (const Entry& entry : Entries()) {
    ModelConfig model;
    model.zoo = entry.name;
    const Network network = Resolve(model, entry.usual_input);
    char line[160];
    std::snprintf(line, sizeof line, "%-10s %10lld parameters %8.1f MFLOP at %-8s%s%s",
                  entry.name.c_str(), static_cast<long long>(network.parameters()), network.mflop(),
                  ToString(entry.usual_input).c_str(), *entry.keys ? "  keys: " : "", entry.keys);
    lines.emplace_back(line);
    while (lines.back().back() == ' ') lines.back().pop_back();
  }
  return lines;
}

}  // namespace ada::graph
