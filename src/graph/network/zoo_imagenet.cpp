// He et al., "Deep residual learning" (2016), table 1; wide_resnet50_2: Zagoruyko and Komodakis,
// "Wide residual networks" (2016).
#include <array>
#include <string>

#include "graph/network/zoo_stack.h"

namespace ada::graph {
namespace {

using config::LayerConfig;
using config::ModelConfig;

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
