// From layer configurations to a checked network: which output feeds which layer, every shape, the
// number of parameters and operations. No tensors, no backend.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "core/tensor.h"

namespace ada::graph {

enum class Kind : std::uint8_t {
  kConv2d,
  kLinear,
  kBatchNorm,
  kRelu,
  kMaxPool,
  kAvgPool,
  kGlobalAvgPool,
  kAdd,
  kFlatten,
  kDropout,
  kShortcut,
  kScale,
};

// A layer whose inputs are found and whose shapes are known. Values are numbered: 0 is the
// network's input, i + 1 the output of node i.
struct Node {
  config::LayerConfig config;
  Kind kind = Kind::kRelu;
  std::vector<int> inputs;      // values
  Shape input, output;          // of the first input and of the output, one image (n = 1)
  std::int64_t parameters = 0;  // trained ones, without running statistics
  double mflop = 0;  // conv2d and linear; forward, one image, a multiply-add counted as 2

  bool is_product() const { return kind == Kind::kConv2d || kind == Kind::kLinear; }
  bool is_trained() const { return is_product() || kind == Kind::kBatchNorm; }
  // Whether its dx gets a scale of its own, by the rule of a policy.
  bool has_rule() const { return is_product() || kind == Kind::kScale; }
  bool rounds_output() const;    // DESIGN, "Rounding points"
  bool rounds_gradient() const;  // the same for dx
};

struct Network {
  Shape input;  // n = 1
  std::vector<Node> nodes;

  const Shape& shape(int value) const { return value == 0 ? input : nodes[value - 1].output; }
  std::int64_t parameters() const;
  double mflop() const;
  // For each value the nodes that read it, in layer order; a node that reads it twice stands twice.
  std::vector<std::vector<int>> Consumers() const;
  // For each value whether its gradient is needed: something before it is trained.
  std::vector<bool> NeedsGradient() const;
};

// Expands model.zoo (or takes model.layers), finds inputs by name (`input` is the network's own;
// none given: the layer before) and infers shapes from `input` (n is ignored). Throws ConfigError,
// "file:line:column: layer NAME: ...", naming both shapes where shapes do not fit.
Network Resolve(const config::ModelConfig& model, const Shape& input);

// "file:line:column: ", or "" where the place is not known.
std::string Place(const Location& where);
// "; did you mean 'NAME'?", or "" where no known name is near.
std::string Nearest(const std::string& name, const std::vector<std::string>& known);

}  // namespace ada::graph
