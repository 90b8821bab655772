// Small networks for segmentation and detection that hold what the large ones do: local response
// normalization, poolings over odd sides and their unpoolings, L2 normalization, heads on several
// layers whose gradients meet, boxes that are joined.
#pragma once
#include <string>
#include <vector>

#include "graph/made_layers.h"

namespace ada::graph::test {

inline config::LayerConfig Unpool(const std::string& name, const std::string& pool, bool whole) {
  return Changed(Layer(name, "max_unpool"), [&](auto& l) { l.pool = pool, l.whole = whole; });
}

// For images of any size; 4 classes.
inline config::ModelConfig SmallSegNet() {
  const auto ceil = [](auto& l) { l.ceil_mode = true; };
  config::ModelConfig model = Model(
      {Changed(Layer("lrn", "lrn"),
               [](auto& l) {
                 l.size = {5, 5};
               }),
       Conv("conv1", 8), Layer("bn1", "batch_norm"), Layer("relu1", "relu"),
       Changed(Window("pool1", "max_pool", 2, 2), ceil), Conv("conv2", 8), Layer("relu2", "relu"),
       Changed(Window("pool2", "max_pool", 2, 2), ceil), Conv("conv3", 8),
       Unpool("unpool2", "pool2", true), Conv("decode2", 8), Layer("bn2", "batch_norm"),
       Unpool("unpool1", "pool1", false), Conv("decode1", 8), Conv("classifier", 4)});
  model.classes = 4;
  return model;
}

// Boxes of 2 and 3 a pixel on two layers, the first of which the second comes from, or on the
// second alone; 3 classes.
inline config::ModelConfig SmallSsd(bool batch_norm, bool second_alone = false) {
  constexpr int kScores = 4;
  std::vector<config::LayerConfig> layers = {Conv("conv1", 8)};
  if (batch_norm) layers.push_back(Layer("bn1", "batch_norm"));
  const std::vector<config::LayerConfig> rest = {
      Layer("relu1", "relu"),
      Changed(Layer("norm1", "l2_normalize"), [](auto& l) { l.value = 5; }),
      Changed(Conv("conv2", 8, {"relu1"}),
              [](auto& l) {
                l.stride = {2, 2};
              }),
      Layer("relu2", "relu"),
      Conv("loc.0", 2 * 4, {"norm1"}),
      Conv("conf.0", 2 * kScores, {"norm1"}),
      Conv("loc.1", 3 * 4, {"relu2"}),
      Conv("conf.1", 3 * kScores, {"relu2"}),
      Layer("locations", "concat_boxes", {"loc.0", "loc.1"}),
      Changed(Layer("scores", "concat_boxes", {"conf.0", "conf.1"}),
              [](auto& l) { l.values = kScores; })};
  layers.insert(layers.end(), rest.begin(), rest.end());
  if (second_alone) {
    layers[layers.size() - 2].inputs = {"loc.1"}, layers.back().inputs = {"conf.1"};
    std::erase_if(layers, [](const auto& l) {
      return l.name == "norm1" || l.name == "loc.0" || l.name == "conf.0";
    });
  }
  config::ModelConfig model = Model(std::move(layers));
  model.outputs = {"locations", "scores"};
  model.classes = kScores - 1;
  return model;
}

}  // namespace ada::graph::test
