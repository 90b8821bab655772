// Layers and models that tests write down.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "config/config.h"

namespace ada::graph::test {

inline config::LayerConfig Layer(const std::string& name, const std::string& kind,
                                 std::vector<std::string> inputs = {}) {
  config::LayerConfig layer;
  layer.name = name;
  layer.kind = kind;
  layer.inputs = std::move(inputs);
  return layer;
}
inline config::LayerConfig Conv(const std::string& name, int channels,
                                std::vector<std::string> inputs = {}) {
  config::LayerConfig layer = Layer(name, "conv2d", std::move(inputs));
  layer.channels = channels;
  layer.kernel = {3, 3};
  layer.padding = {1, 1};
  return layer;
}
inline config::LayerConfig Window(const std::string& name, const std::string& kind, int kernel,
                                  int stride, std::vector<std::string> inputs = {}) {
  config::LayerConfig layer = Layer(name, kind, std::move(inputs));
  layer.kernel = {kernel, kernel};
  layer.stride = {stride, stride};
  return layer;
}
inline config::LayerConfig Linear(const std::string& name, int features,
                                  std::vector<std::string> inputs = {}) {
  config::LayerConfig layer = Layer(name, "linear", std::move(inputs));
  layer.features = features;
  return layer;
}

inline config::ModelConfig Zoo(const std::string& name) {
  config::ModelConfig model;
  model.zoo = name;
  return model;
}
inline config::ModelConfig Model(std::vector<config::LayerConfig> layers) {
  config::ModelConfig model;
  model.layers = std::move(layers);
  return model;
}

inline config::LayerConfig Changed(config::LayerConfig layer, auto change) {
  change(layer);
  return layer;
}

}  // namespace ada::graph::test
