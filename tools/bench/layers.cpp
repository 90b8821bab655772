// See layers.h.
#include "layers.h"

#include <algorithm>
#include <cstdio>
#include <stdexcept>

#include "graph/network/shapes.h"

namespace ada::bench {

std::string Layer::Text() const {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b);
  };
  return (linear ? "linear " : "conv " + pair(w.h, w.w) + " ") + ToString(x) + " > " + ToString(y);
}
double Layer::Flop() const {
  return 2.0 * static_cast<double>(y.numel()) * static_cast<double>(w.numel() / w.n);
}
double Layer::Bytes(int size) const {
  return static_cast<double>(x.numel() + y.numel()) * size + static_cast<double>(w.numel()) * 4;
}

std::vector<Counted> DistinctLayers(const graph::Network& network, int batch) {
  std::vector<Counted> found;
  const std::vector<bool> needs_gradient = network.NeedsGradient();
  for (const graph::Node& node : network.nodes) {
    if (!node.kind->has_weight) continue;
    const config::LayerConfig& config = node.config;
    Layer layer;
    layer.linear = node.config.kind == "linear";
    layer.x = node.input, layer.y = node.output;
    layer.x.n = layer.y.n = batch;
    layer.w = layer.linear
                  ? Shape{layer.y.c, layer.x.h, layer.x.w, layer.x.c}
                  : Shape{layer.y.c, config.kernel[0], config.kernel[1], layer.x.c / config.groups};
    if (!layer.linear) {
      layer.stride = config.stride, layer.padding = config.padding;
      layer.dilation = config.dilation, layer.groups = config.groups;
    }
    layer.bias = config.bias;
    layer.data_gradient = needs_gradient[node.inputs[0]];
    const auto like = std::find_if(found.begin(), found.end(),
                                   [&](const Counted& c) { return c.layer == layer; });
    if (like == found.end())
      found.push_back({layer});
    else
      ++like->layers;
  }
  return found;
}

Shape ParseImage(const char* text) {
  Shape shape;
  shape.n = 1;
  if (std::sscanf(text, "%ldx%ldx%ld", &shape.h, &shape.w, &shape.c) != 3)
    throw std::runtime_error(std::string("expected an image's shape, as 32x32x3, not ") + text);
  return shape;
}

}  // namespace ada::bench
