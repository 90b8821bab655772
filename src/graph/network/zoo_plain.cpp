// Networks without branches. VGG: Simonyan and Zisserman (2015), configurations A, B, D, E with
// batch norm or without; LeNet-5: LeCun et al. (1998).
#include <string>

#include "graph/network/zoo_stack.h"

namespace ada::graph {

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

}  // namespace ada::graph
