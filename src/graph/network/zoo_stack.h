// What the files of the zoo share: a stack that writes down the layers of a model, one call a
// layer, and the models of all these files.
#pragma once
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "config/model_config.h"

namespace ada::graph {

// Appends layers; each starts from the YAML's defaults. References returned are valid until the
// next call.
class ZooStack {
 public:
  explicit ZooStack(const config::ModelConfig& model) : where_(model.where) {}

  config::LayerConfig& Add(const std::string& name, const char* kind) {
    config::LayerConfig& layer = layers_.emplace_back();
    layer.name = name;
    layer.kind = kind;
    layer.where = where_;
    return layer;
  }
  config::LayerConfig& Conv(const std::string& name, int channels, int kernel, int stride,
                            int padding) {
    config::LayerConfig& layer = Add(name, "conv2d");
    layer.channels = channels;
    layer.kernel = {kernel, kernel};
    layer.stride = {stride, stride};
    layer.padding = {padding, padding};
    return layer;
  }
  // A convolution before batch norm has no bias: beta takes its place.
  config::LayerConfig& PlainConv(const std::string& name, int channels, int kernel, int stride) {
    config::LayerConfig& layer = Conv(name, channels, kernel, stride, kernel / 2);
    layer.bias = false;
    return layer;
  }
  void Linear(const std::string& name, int features) { Add(name, "linear").features = features; }
  void MaxPool(const std::string& name) {
    config::LayerConfig& layer = Add(name, "max_pool");
    layer.kernel = layer.stride = {2, 2};
  }
  // Allows the last window to extend beyond the end of an odd height or width.
  void CeilPool(const std::string& name) {
    MaxPool(name);
    layers_.back().ceil_mode = true;
  }
  std::vector<std::string>& InputsOfLast() { return layers_.back().inputs; }
  const std::string& last() const { return layers_.back().name; }
  std::vector<config::LayerConfig> Take() { return std::move(layers_); }

 private:
  Location where_;
  std::vector<config::LayerConfig> layers_;
};

// `channels` times model.width: the nearest multiple of 8, but at least 8.
inline int Widened(int channels, double width) {
  return std::max(8, 8 * static_cast<int>(std::lround(channels * width / 8)));
}

// Without branches. Vgg: how many convolutions each of the five stages has.
std::vector<config::LayerConfig> Mlp(const config::ModelConfig& model);
std::vector<config::LayerConfig> LeNet(const config::ModelConfig& model);
std::vector<config::LayerConfig> Vgg(const config::ModelConfig& model,
                                     const std::array<int, 5>& convolutions);

// ResNets for ImageNet's 224x224 images, as torchvision builds them (in a bottleneck the 3x3
// convolution has the stride), with its names and order of parameters: weights can be exchanged in
// both directions. The stem (a 7x7 convolution and a pooling, each with stride 2) quarters height
// and width, for large images. On CIFAR's 32x32 the last stage would see single pixels: for those
// the zoo has resnet20 to resnet110.
std::vector<config::LayerConfig> ResNet18(const config::ModelConfig& model);
std::vector<config::LayerConfig> ResNet34(const config::ModelConfig& model);
std::vector<config::LayerConfig> ResNet50(const config::ModelConfig& model);
std::vector<config::LayerConfig> ResNet101(const config::ModelConfig& model);
std::vector<config::LayerConfig> ResNet152(const config::ModelConfig& model);
std::vector<config::LayerConfig> WideResNet50(const config::ModelConfig& model);
// Also as torchvision builds them. `model.dropout` is the dropout rate of mobilenet_v2.
std::vector<config::LayerConfig> MobileNetV2(const config::ModelConfig& model);
std::vector<config::LayerConfig> DenseNet121(const config::ModelConfig& model);

// For CIFAR. depth 6n + 2. `shortcut: reference`: every stage begins with a projection, and the
// stride is that of the second convolution of its first block.
std::vector<config::LayerConfig> CifarResNet(const config::ModelConfig& model, int depth);
// Batch norm and relu come before the convolutions; where channels change, the shortcut is a
// convolution, without batch norm, of the first relu's output. depth 6n + 2 with two 3x3
// convolutions a block; 164: 9n + 2 with bottlenecks, whose 3x3 convolution has the stride.
std::vector<config::LayerConfig> CifarPreResNet(const config::ModelConfig& model, int depth);
// The same with `factor` times the channels; depth 6n + 4; model.dropout between convolutions.
std::vector<config::LayerConfig> CifarWideResNet(const config::ModelConfig& model, int depth,
                                                 int factor);

// Name, or prefix of the names, of the layers that model.cast adds after the network's outputs.
inline constexpr char kCast[] = "cast";

// For segmentation: logits of each pixel.
std::vector<config::LayerConfig> SegNetBasic(const config::ModelConfig& model);
std::vector<config::LayerConfig> SegNet(const config::ModelConfig& model);

// For detection: the network's outputs are the layers with these names.
inline constexpr char kSsdLocations[] = "locations", kSsdScores[] = "scores";
std::vector<config::LayerConfig> Ssd300(const config::ModelConfig& model);
std::vector<config::LayerConfig> Ssd512(const config::ModelConfig& model);

// Transformers, by the sizes of model.transformer.
std::vector<config::LayerConfig> Gpt2(const config::ModelConfig& model);
std::vector<config::LayerConfig> Llama(const config::ModelConfig& model);
std::vector<config::LayerConfig> Vit(const config::ModelConfig& model);

}  // namespace ada::graph
