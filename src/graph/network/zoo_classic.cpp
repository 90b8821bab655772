// MLPs, LeNet-5 (LeCun et al., 1998), VGG (Simonyan and Zisserman, 2015, configurations A, B, D, E
// with batch norm or without), MobileNetV2 (Sandler et al., 2018, table 2), DenseNet-121 (Huang et
// al., 2017, table 1).
#include <string>
#include <vector>

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

// --- MobileNetV2 ---

namespace {

using config::LayerConfig;
using config::ModelConfig;

// A row of the table: how often the block is repeated; only the first has the stride.
struct InvertedRow {
  int expansion, channels, blocks, stride;
};
constexpr InvertedRow kRows[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};

// Convolution, batch norm and relu6, as `name`0, 1 and 2. groups: as many as channels, or 1.
void AddConvNormRelu(ZooStack& net, const std::string& name, int channels, int kernel, int stride,
                     int groups) {
  net.PlainConv(name + "0", channels, kernel, stride).groups = groups;
  net.Add(name + "1", "batch_norm");
  net.Add(name + "2", "relu6");
}

// Expands by `expansion`, filters each channel separately (as many groups as channels), and
// projects without an activation. The addition exists only if input and output have the same shape.
void AddInvertedResidual(ZooStack& net, const std::string& block, int in, const InvertedRow& row,
                         int stride) {
  const std::string input = net.last();
  const int wide = in * row.expansion;
  int part = 0;
  const auto next = [&] { return block + "conv." + std::to_string(part++); };
  if (row.expansion > 1) AddConvNormRelu(net, next() + ".", wide, 1, 1, 1);
  AddConvNormRelu(net, next() + ".", wide, 3, stride, wide);
  net.PlainConv(next(), row.channels, 1, 1);
  net.Add(next(), "batch_norm");
  if (stride > 1 || in != row.channels) return;
  const std::string path = net.last();
  net.Add(block + "add", "add").inputs = {input, path};
}

}  // namespace

std::vector<LayerConfig> MobileNetV2(const ModelConfig& model) {
  ZooStack net(model);
  int channels = 32, index = 1;
  AddConvNormRelu(net, "features.0.", channels, 3, 2, 1);
  for (const InvertedRow& row : kRows) {
    for (int i = 0; i < row.blocks; ++i) {
      AddInvertedResidual(net, "features." + std::to_string(index++) + ".", channels, row,
                          i == 0 ? row.stride : 1);
      channels = row.channels;
    }
  }
  AddConvNormRelu(net, "features." + std::to_string(index) + ".", 1280, 1, 1, 1);
  net.Add("pool", "global_avg_pool");
  if (model.dropout > 0) net.Add("classifier.0", "dropout").rate = model.dropout;
  net.Linear("classifier.1", model.classes);
  return net.Take();
}

// --- DenseNet ---

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
