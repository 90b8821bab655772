// Huang et al., "Densely connected convolutional networks" (2017), table 1, DenseNet-121.
#include <string>
#include <vector>

#include "graph/network/zoo_stack.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

constexpr int kGrowth = 32, kBottleneck = 4 * kGrowth;
constexpr int kLayers[] = {6, 12, 24, 16};  // of the four blocks

// Concatenates all that comes before a layer in its block, which the layer reads.
void AddConcat(ZooStack& net, const std::string& name, const std::vector<std::string>& parts) {
  if (parts.size() > 1) net.Add(name, "concat").inputs = parts;
}

// A 1x1 convolution to four times the growth rate's channels, then a 3x3 convolution to the growth
// rate's channels, which are added to `parts`: the inputs of all later layers of the block.
void AddDenseLayer(ZooStack& net, const std::string& layer, std::vector<std::string>& parts) {
  AddConcat(net, layer + "concat", parts);
  net.Add(layer + "norm1", "batch_norm");
  net.Add(layer + "relu1", "relu");
  net.PlainConv(layer + "conv1", kBottleneck, 1, 1);
  net.Add(layer + "norm2", "batch_norm");
  net.Add(layer + "relu2", "relu");
  net.PlainConv(layer + "conv2", kGrowth, 3, 1);
  parts.push_back(net.last());
}

// Halves channels, then height and width, between two blocks.
void AddTransition(ZooStack& net, const std::string& name, int channels) {
  net.Add(name + "norm", "batch_norm");
  net.Add(name + "relu", "relu");
  net.PlainConv(name + "conv", channels, 1, 1);
  LayerConfig& pool = net.Add(name + "pool", "avg_pool");
  pool.kernel = pool.stride = {2, 2};
}

}  // namespace

std::vector<LayerConfig> DenseNet121(const ModelConfig& model) {
  ZooStack net(model);
  int channels = 64;
  net.PlainConv("features.conv0", channels, 7, 2);
  net.Add("features.norm0", "batch_norm");
  net.Add("features.relu0", "relu");
  LayerConfig& pool = net.Add("features.pool0", "max_pool");
  pool.kernel = {3, 3}, pool.stride = {2, 2}, pool.padding = {1, 1};
  for (int b = 1; b <= 4; ++b) {
    const std::string block = "features.denseblock" + std::to_string(b) + ".";
    std::vector<std::string> parts = {net.last()};
    for (int i = 1; i <= kLayers[b - 1]; ++i)
      AddDenseLayer(net, block + "denselayer" + std::to_string(i) + ".", parts);
    AddConcat(net, block + "concat", parts);
    channels += kLayers[b - 1] * kGrowth;
    if (b == 4) break;
    channels /= 2;
    AddTransition(net, "features.transition" + std::to_string(b) + ".", channels);
  }
  net.Add("features.norm5", "batch_norm");
  net.Add("relu", "relu");
  net.Add("pool", "global_avg_pool");
  net.Linear("classifier", model.classes);
  return net.Take();
}

}  // namespace ada::graph
