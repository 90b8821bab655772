// What writes down the layers of a zoo model: one call a layer.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::graph {

// Appends layers; each starts from the defaults of the YAML.
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
  const std::string& last() const { return layers_.back().name; }
  std::vector<config::LayerConfig> Take() { return std::move(layers_); }

 private:
  Location where_;
  std::vector<config::LayerConfig> layers_;
};

}  // namespace ada::graph
