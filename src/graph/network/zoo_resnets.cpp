// ResNets, for CIFAR and ImageNet: He et al., "Deep residual learning" (2016), section 4.2
// (resnet20 to resnet110) and table 1 (resnet18 to resnet152). preresnet20 to preresnet164: He et
// al., "Identity mappings in deep residual networks" (2016). wide_resnet and wide_resnet50_2:
// Zagoruyko and Komodakis, "Wide residual networks" (2016).
#include <array>
#include <string>

#include "error.h"
#include "graph/network/shapes.h"
#include "graph/network/zoo_stack.h"

namespace ada::graph {

namespace {

using config::LayerConfig;
using config::ModelConfig;

std::string BlockName(int stage, int index) {
  return "stage" + std::to_string(stage) + ".block" + std::to_string(index) + ".";
}

// Brings `input` to the block's shape and returns the name that `add` reads as the shortcut.
std::string AddShortcut(ZooStack& net, const std::string& block, const std::string& input,
                        int channels, int stride, bool projection) {
  if (!projection) {
    LayerConfig& layer = net.Add(block + "shortcut", "shortcut");
    layer.inputs = {input};
    layer.channels = channels;
    layer.stride = {stride, stride};
    return layer.name;
  }
  net.PlainConv(block + "shortcut.conv", channels, 1, stride).inputs = {input};
  net.Add(block + "shortcut.bn", "batch_norm");
  return net.last();
}

// The parameters of a stage of a pre-activation network.
struct PreStage {
  int channels = 0;  // between blocks
  int inner = 0;     // of a bottleneck; 0: two 3x3 convolutions
  int stride = 1;
};

// Batch norm, relu and a convolution; the index is part of their names.
void AddPreConv(ZooStack& net, const std::string& block, int index, int channels, int kernel,
                int stride) {
  const std::string number = std::to_string(index);
  net.Add(block + "bn" + number, "batch_norm");
  net.Add(block + "relu" + number, "relu");
  net.PlainConv(block + "conv" + number, channels, kernel, stride);
}

// The shortcut is the block's unchanged input, except where channels change: there it starts at the
// first relu, which both paths share.
void AddPreBlock(ZooStack& net, const std::string& block, const PreStage& stage, int stride,
                 bool projection, double dropout) {
  std::string input = net.last();
  const bool bottleneck = stage.inner > 0;
  AddPreConv(net, block, 1, bottleneck ? stage.inner : stage.channels, bottleneck ? 1 : 3,
             bottleneck ? 1 : stride);
  if (dropout > 0) {  // between the convolutions, after the second relu
    net.Add(block + "bn2", "batch_norm");
    net.Add(block + "relu2", "relu");
    net.Add(block + "dropout", "dropout").rate = dropout;
    net.PlainConv(block + "conv2", stage.channels, 3, 1);
  } else {
    AddPreConv(net, block, 2, bottleneck ? stage.inner : stage.channels, 3,
               bottleneck ? stride : 1);
  }
  if (bottleneck) AddPreConv(net, block, 3, stage.channels, 1, 1);
  const std::string path = net.last();
  if (projection) {  // of what the first relu gives
    net.PlainConv(block + "shortcut", stage.channels, 1, stride).inputs = {block + "relu1"};
    input = net.last();
  }
  net.Add(block + "add", "add").inputs = {path, input};
}

// Within its block nothing normalizes the last addition, so a norm and a relu follow it before the
// pooling.
std::vector<LayerConfig> PreActivated(const ModelConfig& model, int blocks,
                                      const std::array<PreStage, 3>& stages) {
  ZooStack net(model);
  int channels = 16;
  net.PlainConv("conv1", channels, 3, 1);
  for (int s = 0; s < 3; ++s) {
    for (int index = 1; index <= blocks; ++index) {
      AddPreBlock(net, BlockName(s + 1, index), stages[s], index == 1 ? stages[s].stride : 1,
                  stages[s].channels != channels, model.dropout);
      channels = stages[s].channels;
    }
  }
  net.Add("bn", "batch_norm");
  net.Add("relu", "relu");
  net.Add("pool", "global_avg_pool");
  net.Linear("fc", model.classes);
  return net.Take();
}

}  // namespace

// Each stage but the first halves height and width in its first block and doubles the channels.
std::vector<LayerConfig> CifarResNet(const ModelConfig& model, int depth) {
  const bool reference = model.shortcut == "reference";
  if (model.shortcut != "A" && model.shortcut != "B" && !reference) {
    throw ConfigError(PlacePrefix(model.where) +
                      "model.shortcut: expected A, B or reference, found '" + model.shortcut + "'");
  }
  ZooStack net(model);
  net.PlainConv("conv1", 16, 3, 1);
  net.Add("bn1", "batch_norm");
  net.Add("relu1", "relu");
  const int blocks = (depth - 2) / 6;
  for (int stage = 1; stage <= 3; ++stage) {
    const int channels = 8 << stage;
    for (int index = 1; index <= blocks; ++index) {
      const std::string block = BlockName(stage, index);
      const int stride = stage > 1 && index == 1 ? 2 : 1;
      std::string input = net.last();
      net.PlainConv(block + "conv1", channels, 3, reference ? 1 : stride);
      net.Add(block + "bn1", "batch_norm");
      net.Add(block + "relu1", "relu");
      net.PlainConv(block + "conv2", channels, 3, reference ? stride : 1);
      net.Add(block + "bn2", "batch_norm");
      if (stride > 1 || (reference && index == 1))
        input = AddShortcut(net, block, input, channels, stride, model.shortcut != "A");
      net.Add(block + "add", "add").inputs = {block + "bn2", input};
      net.Add(block + "relu2", "relu");
    }
  }
  net.Add("pool", "global_avg_pool");
  net.Linear("fc", model.classes);
  return net.Take();
}

std::vector<LayerConfig> CifarPreResNet(const ModelConfig& model, int depth) {
  ModelConfig plain = model;
  plain.dropout = 0;
  if (depth == 164)
    return PreActivated(plain, (depth - 2) / 9, {{{64, 16, 1}, {128, 32, 2}, {256, 64, 2}}});
  return PreActivated(plain, (depth - 2) / 6, {{{16, 0, 1}, {32, 0, 2}, {64, 0, 2}}});
}

std::vector<LayerConfig> CifarWideResNet(const ModelConfig& model, int depth, int factor) {
  return PreActivated(model, (depth - 4) / 6,
                      {{{16 * factor, 0, 1}, {32 * factor, 0, 2}, {64 * factor, 0, 2}}});
}

namespace {

// The convolutions of a block: each is followed by batch norm and relu, except the last, which is
// followed by batch norm and the addition.
struct BlockConvolution {
  int channels, kernel, stride;
};

std::vector<BlockConvolution> BasicBlock(int width, int stride) {
  return {{width, 3, stride}, {width, 3, 1}};
}
std::vector<BlockConvolution> Bottleneck(int width, int stride) {
  return {{width, 1, 1}, {width, 3, stride}, {4 * width, 1, 1}};
}
std::vector<BlockConvolution> WideBottleneck(int width, int stride) {
  return {{2 * width, 1, 1}, {2 * width, 3, stride}, {4 * width, 1, 1}};
}

// The projection has the stride of the whole main path, because the two are added.
void AddBlock(ZooStack& net, const std::string& block, const std::vector<BlockConvolution>& parts,
              bool projection) {
  std::string input = net.last();
  std::string index;
  int stride = 1;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    index = std::to_string(i + 1);
    if (i > 0) net.Add(block + "relu" + std::to_string(i), "relu");
    net.PlainConv(block + "conv" + index, parts[i].channels, parts[i].kernel, parts[i].stride);
    net.Add(block + "bn" + index, "batch_norm");
    stride *= parts[i].stride;
  }
  const std::string path = net.last();
  if (projection) {
    net.PlainConv(block + "downsample.0", parts.back().channels, 1, stride).inputs = {input};
    net.Add(block + "downsample.1", "batch_norm");
    input = net.last();
  }
  net.Add(block + "add", "add").inputs = {path, input};
  net.Add(block + "relu" + index, "relu");
}

std::vector<LayerConfig> ImageNetResNet(const ModelConfig& model, const std::array<int, 4>& blocks,
                                        std::vector<BlockConvolution> (*block_of)(int width,
                                                                                  int stride)) {
  ZooStack net(model);
  net.PlainConv("conv1", 64, 7, 2);
  net.Add("bn1", "batch_norm");
  net.Add("relu", "relu");
  LayerConfig& pool = net.Add("maxpool", "max_pool");
  pool.kernel = {3, 3}, pool.stride = {2, 2}, pool.padding = {1, 1};
  int channels = 64;
  for (int stage = 0; stage < 4; ++stage) {
    for (int index = 0; index < blocks[stage]; ++index) {
      const int stride = stage > 0 && index == 0 ? 2 : 1;
      const std::vector<BlockConvolution> parts = block_of(64 << stage, stride);
      AddBlock(net, "layer" + std::to_string(stage + 1) + "." + std::to_string(index) + ".", parts,
               stride > 1 || parts.back().channels != channels);
      channels = parts.back().channels;
    }
  }
  net.Add("avgpool", "global_avg_pool");
  net.Linear("fc", model.classes);
  return net.Take();
}

}  // namespace

std::vector<LayerConfig> ResNet18(const ModelConfig& model) {
  return ImageNetResNet(model, {2, 2, 2, 2}, BasicBlock);
}
std::vector<LayerConfig> ResNet34(const ModelConfig& model) {
  return ImageNetResNet(model, {3, 4, 6, 3}, BasicBlock);
}
std::vector<LayerConfig> ResNet50(const ModelConfig& model) {
  return ImageNetResNet(model, {3, 4, 6, 3}, Bottleneck);
}
std::vector<LayerConfig> ResNet101(const ModelConfig& model) {
  return ImageNetResNet(model, {3, 4, 23, 3}, Bottleneck);
}
std::vector<LayerConfig> ResNet152(const ModelConfig& model) {
  return ImageNetResNet(model, {3, 8, 36, 3}, Bottleneck);
}
std::vector<LayerConfig> WideResNet50(const ModelConfig& model) {
  return ImageNetResNet(model, {3, 4, 6, 3}, WideBottleneck);
}

}  // namespace ada::graph
