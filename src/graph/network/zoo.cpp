// VGG: Simonyan and Zisserman (2015), configurations A, B, D, E with batch norm or without;
// LeNet-5: LeCun et al. (1998). And the table of all models.
#include "graph/network/zoo.h"

#include <array>
#include <cstdio>

#include "core/error.h"
#include "core/text.h"
#include "graph/network/shapes.h"
#include "graph/network/zoo_stack.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

std::vector<LayerConfig> Mlp(const ModelConfig& model) {
  ZooStack net(model);
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
  ZooStack net(model);
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

std::vector<LayerConfig> Vgg(const ModelConfig& model, const std::array<int, 5>& convolutions) {
  static constexpr std::array<int, 5> kChannels = {64, 128, 256, 512, 512};
  ZooStack net(model);
  for (int s = 0; s < 5; ++s) {
    const std::string stage = "stage" + std::to_string(s + 1) + ".";
    for (int i = 1; i <= convolutions[s]; ++i) {
      const std::string index = std::to_string(i);
      net.PlainConv(stage + "conv" + index, kChannels[s], 3, 1).bias = model.plain;
      if (!model.plain) net.Add(stage + "bn" + index, "batch_norm");
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
  int usual_classes = 10;
};

template <int depth>
std::vector<LayerConfig> ResNetOf(const ModelConfig& model) {
  return CifarResNet(model, depth);
}
template <int depth>
std::vector<LayerConfig> PreResNetOf(const ModelConfig& model) {
  return CifarPreResNet(model, depth);
}
template <int depth, int factor>
std::vector<LayerConfig> WideResNetOf(const ModelConfig& model) {
  return CifarWideResNet(model, depth, factor);
}
template <int... convolutions>
std::vector<LayerConfig> VggOf(const ModelConfig& model) {
  return Vgg(model, {convolutions...});
}

const std::vector<Entry>& Entries() {
  static const Shape kMnist{1, 28, 28, 1}, kCifar{1, 32, 32, 3}, kImageNet{1, 224, 224, 3};
  static const std::vector<Entry> entries = {
      {"mlp", kMnist, "hidden", Mlp},
      {"lenet", kMnist, "", LeNet},
      {"resnet20", kCifar, "shortcut", ResNetOf<20>},
      {"resnet32", kCifar, "shortcut", ResNetOf<32>},
      {"resnet44", kCifar, "shortcut", ResNetOf<44>},
      {"resnet56", kCifar, "shortcut", ResNetOf<56>},
      {"resnet110", kCifar, "shortcut", ResNetOf<110>},
      {"preresnet20", kCifar, "", PreResNetOf<20>},
      {"preresnet32", kCifar, "", PreResNetOf<32>},
      {"preresnet44", kCifar, "", PreResNetOf<44>},
      {"preresnet56", kCifar, "", PreResNetOf<56>},
      {"preresnet110", kCifar, "", PreResNetOf<110>},
      {"preresnet164", kCifar, "", PreResNetOf<164>},
      {"wide_resnet28_10", kCifar, "dropout", WideResNetOf<28, 10>},
      {"wide_resnet16_8", kCifar, "dropout", WideResNetOf<16, 8>},
      {"vgg11", kCifar, "dropout, plain", VggOf<1, 1, 2, 2, 2>},
      {"vgg13", kCifar, "dropout, plain", VggOf<2, 2, 2, 2, 2>},
      {"vgg16", kCifar, "dropout, plain", VggOf<2, 2, 3, 3, 3>},
      {"vgg19", kCifar, "dropout, plain", VggOf<2, 2, 4, 4, 4>},
      {"resnet18", kImageNet, "", ResNet18, 1000},
      {"resnet34", kImageNet, "", ResNet34, 1000},
      {"resnet50", kImageNet, "", ResNet50, 1000},
      {"resnet101", kImageNet, "", ResNet101, 1000},
      {"resnet152", kImageNet, "", ResNet152, 1000},
      {"wide_resnet50_2", kImageNet, "", WideResNet50, 1000},
      {"mobilenet_v2", kImageNet, "dropout", MobileNetV2, 1000},
      {"densenet121", kImageNet, "", DenseNet121, 1000},
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
  throw ConfigError(PlacePrefix(model.where) + "model.zoo: unknown model '" + model.zoo + "'" +
                    Nearest(model.zoo, ZooNames()) + "; `ada-train models` lists them");
}

std::vector<std::string> ListModels() {
  std::vector<std::string> lines;
  for (const Entry& entry : Entries()) {
    ModelConfig model;
    model.zoo = entry.name;
    model.classes = entry.usual_classes;
    const Network network = Resolve(model, entry.usual_input);
    char line[160];
    std::snprintf(line, sizeof line, "%-16s %10lld parameters %8.1f MFLOP at %-8s%s%s",
                  entry.name.c_str(), static_cast<long long>(network.trained_numel()),
                  network.mflop(), ToString(entry.usual_input).c_str(),
                  *entry.keys ? "  keys: " : "", entry.keys);
    lines.emplace_back(line);
    while (lines.back().back() == ' ') lines.back().pop_back();
  }
  return lines;
}

}  // namespace ada::graph
