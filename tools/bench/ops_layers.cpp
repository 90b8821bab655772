// See ops.h.
#include <algorithm>
#include <cstdio>
#include <optional>
#include <stdexcept>

#include "graph/network/shapes.h"
#include "ops.h"

namespace ada::bench {

std::string Layer::Text() const {
  const auto pair = [](std::int64_t a, std::int64_t b) {
    return std::to_string(a) + "x" + std::to_string(b);
  };
  if (attention())
    return "attention " + pair(heads, x.c / heads) + ' ' + std::to_string(keys) +
           (causal ? " tokens causal" : " tokens");
  return (linear ? "linear " : "conv " + pair(w.h, w.w) + " ") + ToString(x) + " > " + ToString(y);
}
double Layer::Flop(bool forward) const {
  const auto results = static_cast<double>(y.numel());
  if (attention()) return (forward ? 4.0 : 8.0) * results * static_cast<double>(keys);
  return 2.0 * results * static_cast<double>(w.numel() / w.n);
}
double Layer::Bytes(int size, bool forward) const {
  const auto values = static_cast<double>(x.numel() + y.numel());
  if (!attention()) return values * size + static_cast<double>(w.numel()) * 4;
  const auto others = static_cast<double>(2 * x.n * keys * kv_heads * (x.c / heads));
  // Backwards everything is read again, and each of the three inputs has a gradient.
  return (forward ? values + others : 2 * (values + others)) * size;
}

namespace {

// The node as a layer over `batch` images; nothing: it is no product that is timed.
std::optional<Layer> LayerOf(const graph::Network& network, std::size_t i, int batch) {
  const graph::Node& node = network.nodes[i];
  const config::LayerConfig& config = node.config;
  Layer layer;
  layer.x = node.input, layer.y = node.output;
  layer.x.n = layer.y.n = batch;
  layer.data_gradient = network.NeedsGradient()[node.inputs[0]];
  if (config.kind == "attention") {
    layer.heads = config.heads, layer.kv_heads = config.kv_heads, layer.causal = config.causal;
    layer.x.c = layer.y.c;  // of queries, where keys and values stand in the same tensor
    const Shape& keys = network.shape(node.inputs[node.inputs.size() == 1 ? 0 : 1]);
    layer.keys = keys.h * keys.w;
    return layer;
  }
  layer.linear = config.kind == "linear";
  if (!layer.linear && config.kind != "conv2d") return std::nullopt;
  const int owner = node.weight_owner(static_cast<int>(i));
  layer.w = network.nodes[owner].parameters[0].shape;
  layer.bias = config.bias;
  if (layer.linear) return layer;
  layer.stride = config.stride, layer.padding = config.padding;
  layer.dilation = config.dilation, layer.groups = config.groups;
  return layer;
}

}  // namespace

std::vector<Counted> DistinctLayers(const graph::Network& network, int batch) {
  std::vector<Counted> found;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const std::optional<Layer> layer = LayerOf(network, i, batch);
    if (!layer) continue;
    const auto like = std::find_if(found.begin(), found.end(),
                                   [&](const Counted& c) { return c.layer == *layer; });
    if (like == found.end())
      found.push_back({*layer});
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
