// See infer.h. Sizes of windows as in PyTorch: floor((in + 2 padding - effective kernel) / stride)
// + 1.
#include "graph/network/infer.h"

#include <array>
#include <string_view>

#include "core/error.h"

namespace ada::graph {
namespace {

using config::LayerConfig;

constexpr std::array<std::string_view, 12> kKindNames = {
    "conv2d",          "linear", "batch_norm", "relu",    "max_pool", "avg_pool",
    "global_avg_pool", "add",    "flatten",    "dropout", "shortcut", "scale"};

using Extent = std::array<std::int64_t, 2>;

template <typename T>
std::string Pair(const std::array<T, 2>& pair) {
  return std::to_string(pair[0]) + "x" + std::to_string(pair[1]);
}

void Require(bool condition, const LayerConfig& layer, const std::string& message) {
  if (!condition) FailLayer(layer, message);
}

void CheckWindow(const LayerConfig& layer) {
  for (int d = 0; d < 2; ++d) {
    Require(layer.kernel[d] >= 1 && layer.stride[d] >= 1 && layer.dilation[d] >= 1, layer,
            "kernel, stride and dilation must be at least 1");
    Require(layer.padding[d] >= 0, layer, "padding must not be negative");
  }
}

// Height and width after sliding the layer's window over `input`.
Shape Slide(const LayerConfig& layer, const Shape& input, std::int64_t channels) {
  CheckWindow(layer);
  const Extent size = {input.h, input.w};
  Extent effective, padded;
  for (int d = 0; d < 2; ++d) {
    effective[d] = std::int64_t{layer.dilation[d]} * (layer.kernel[d] - 1) + 1;
    padded[d] = size[d] + 2 * std::int64_t{layer.padding[d]};
  }
  if (effective[0] > padded[0] || effective[1] > padded[1]) {
    const bool dilated = effective != Extent{layer.kernel[0], layer.kernel[1]};
    FailLayer(layer, "kernel " + Pair(layer.kernel) +
                         (dilated ? " (" + Pair(effective) + " with its dilation)" : "") +
                         " is larger than the padded input " + Pair(padded) + " (input " +
                         ToString(input) + ", padding " + Pair(layer.padding) + ")");
  }
  return {1, (padded[0] - effective[0]) / layer.stride[0] + 1,
          (padded[1] - effective[1]) / layer.stride[1] + 1, channels};
}

void InferConv2d(Node& node) {
  const LayerConfig& layer = node.config;
  const std::int64_t in = node.input.c, out = layer.channels;
  Require(out >= 1, layer, "channels must be at least 1");
  Require(layer.groups >= 1, layer, "groups must be at least 1");
  Require(in % layer.groups == 0 && out % layer.groups == 0, layer,
          "groups " + std::to_string(layer.groups) + " must divide the input's channels " +
              std::to_string(in) + " (input " + ToString(node.input) + ") and the output's " +
              std::to_string(out));
  node.output = Slide(layer, node.input, out);
  const std::int64_t window = std::int64_t{layer.kernel[0]} * layer.kernel[1] * in / layer.groups;
  node.parameters = out * window + (layer.bias ? out : 0);
  node.mflop = 2e-6 * static_cast<double>(node.output.numel()) * static_cast<double>(window);
}

void InferLinear(Node& node) {
  const LayerConfig& layer = node.config;
  const std::int64_t in = node.input.numel(), out = layer.features;
  Require(out >= 1, layer, "features must be at least 1");
  node.output = {1, 1, 1, out};
  node.parameters = out * in + (layer.bias ? out : 0);
  node.mflop = 2e-6 * static_cast<double>(in) * static_cast<double>(out);
}

void InferPool(Node& node) {
  const LayerConfig& layer = node.config;
  node.output = Slide(layer, node.input, node.input.c);
  Require(layer.dilation == std::array<int, 2>{1, 1}, layer, "pooling knows no dilation");
  Require(layer.padding[0] <= layer.kernel[0] / 2 && layer.padding[1] <= layer.kernel[1] / 2, layer,
          "padding " + Pair(layer.padding) + " is more than half of kernel " + Pair(layer.kernel));
}

void InferGlobalPool(Node& node) {
  LayerConfig& layer = node.config;
  layer.kernel = layer.stride = {static_cast<int>(node.input.h), static_cast<int>(node.input.w)};
  layer.padding = {0, 0};
  node.output = {1, 1, 1, node.input.c};
}

void InferAdd(Node& node, const std::vector<InputShape>& inputs) {
  for (const InputShape& other : inputs) {
    if (other.shape == inputs[0].shape) continue;
    FailLayer(node.config, "shapes differ: " + ToString(inputs[0].shape) + " (" + inputs[0].name +
                               ") and " + ToString(other.shape) + " (" + other.name + ")");
  }
  node.output = node.input;
}

void InferDropout(Node& node) {
  Require(node.config.rate >= 0 && node.config.rate < 1, node.config,
          "rate must be at least 0 and less than 1");
  node.output = node.input;
}

void InferShortcut(Node& node) {
  const LayerConfig& layer = node.config;
  CheckWindow(layer);
  Require(layer.channels >= node.input.c, layer,
          "a shortcut only adds channels: input " + ToString(node.input) + ", channels " +
              std::to_string(layer.channels));
  node.output = {1, (node.input.h + layer.stride[0] - 1) / layer.stride[0],
                 (node.input.w + layer.stride[1] - 1) / layer.stride[1], layer.channels};
}

void CheckInputCount(const LayerConfig& layer, Kind kind, std::size_t count) {
  if (kind == Kind::kAdd) {
    Require(count >= 2, layer, "add takes at least two `inputs`, found " + std::to_string(count));
  } else {
    Require(count == 1, layer,
            layer.kind + " takes one input, found " + std::to_string(count) + " in `inputs`");
  }
}

}  // namespace

void FailLayer(const LayerConfig& layer, const std::string& message) {
  throw ConfigError(Place(layer.where) + "layer " + layer.name + ": " + message);
}

Kind KindOf(const LayerConfig& layer) {
  std::vector<std::string> known;
  for (std::size_t i = 0; i < kKindNames.size(); ++i) {
    if (layer.kind == kKindNames[i]) return static_cast<Kind>(i);
    known.emplace_back(kKindNames[i]);
  }
  FailLayer(layer, "unknown kind '" + layer.kind + "'" + Nearest(layer.kind, known));
}

void Infer(Node& node, const std::vector<InputShape>& inputs) {
  CheckInputCount(node.config, node.kind, inputs.size());
  node.input = inputs[0].shape;
  switch (node.kind) {
    case Kind::kConv2d:
      return InferConv2d(node);
    case Kind::kLinear:
      return InferLinear(node);
    case Kind::kMaxPool:
    case Kind::kAvgPool:
      return InferPool(node);
    case Kind::kGlobalAvgPool:
      return InferGlobalPool(node);
    case Kind::kAdd:
      return InferAdd(node, inputs);
    case Kind::kDropout:
      return InferDropout(node);
    case Kind::kShortcut:
      return InferShortcut(node);
    case Kind::kFlatten:
      node.output = {1, 1, 1, node.input.numel()};
      return;
    case Kind::kBatchNorm:
      node.output = node.input;
      node.parameters = 2 * node.input.c;
      return;
    case Kind::kRelu:
    case Kind::kScale:
      node.output = node.input;
      return;
  }
}

bool Node::rounds_output() const {
  return kind != Kind::kRelu && kind != Kind::kMaxPool && kind != Kind::kFlatten &&
         kind != Kind::kShortcut;
}

bool Node::rounds_gradient() const {
  if (kind == Kind::kMaxPool) {
    return config.kernel[0] > config.stride[0] || config.kernel[1] > config.stride[1];
  }
  return rounds_output() && kind != Kind::kAdd;
}

}  // namespace ada::graph
