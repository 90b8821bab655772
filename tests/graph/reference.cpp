// See reference.h.
#include "graph/reference.h"

#include "graph/fake_backend.h"
#include "io/text.h"

namespace ada::graph::test {
namespace {

class ReferenceStep {
 public:
  ReferenceStep(const Network& network, const RuleFor& rule_for, bool scales_batch_norms)
      : network_(network),
        rule_for_(rule_for),
        scales_batch_norms_(scales_batch_norms),
        needs_(network.NeedsGradient()) {}

  Reference Run() {
    const int nodes = static_cast<int>(network_.nodes.size());
    y_ = {Hash("input", {})};
    for (const Node& node : network_.nodes) y_.push_back(Forward(node));
    std::vector<Symbol> outputs;
    for (const int value : network_.outputs) outputs.push_back(y_[value]);
    r_.logits = LossSymbol(outputs);
    gradients_.resize(nodes + 1);
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      const G gradient{LossGradient(outputs, i), 8};
      gradients_[network_.outputs[i]].push_back(gradient);
      Note("loss", i == 0 ? "dx" : "dx2", gradient);
    }
    for (int i = nodes - 1; i >= 0; --i) {
      if (needs_[i + 1]) Backward(i, Meet(i + 1));
    }
    return r_;
  }

 private:
  struct G {
    Symbol symbol;
    float scale;
  };

  // By name, beside the table of kinds that the graph asks.
  static bool Is(const Node& node, const char* kind) { return node.config.kind == kind; }
  static bool IsActivation(const Node& node) {
    return Contains({"relu6", "hardtanh", "leaky_relu", "sigmoid", "tanh", "silu", "hardsigmoid",
                     "hardswish", "gelu", "softplus", "elu"},
                    node.config.kind);
  }
  static bool IsGroupedNorm(const Node& node) {
    return Is(node, "layer_norm") || Is(node, "group_norm");
  }
  static bool IsMatmul(const Node& node) {
    return Is(node, "conv2d") || Is(node, "conv_transpose2d") || Is(node, "linear");
  }
  static bool IsBilinear(const Node& node) {
    return Is(node, "upsample") && node.config.mode == "bilinear";
  }
  // The pooling whose positions a max_unpool takes, and what that noted.
  const Node& PoolOf(const Node& node) const {
    for (const Node& other : network_.nodes)
      if (other.config.name == node.config.pool) return other;
    throw std::runtime_error("no pool");
  }
  Symbol PositionsFor(const Node& node) const {
    return PositionsSymbol(y_[PoolOf(node).inputs[0]]);
  }
  std::string FormulaOf(const Node& node) const;
  static Symbol P(const Node& node, const char* name) {
    return Hash(node.config.name + "." + name, {});
  }
  void Note(const std::string& layer, const std::string& tensor, const G& g) {
    r_.roundings.emplace_back(layer, tensor);
    r_.symbols[layer + " " + tensor] = g.symbol;
    r_.scales[layer + " " + tensor] = g.scale;
  }
  Symbol Forward(const Node& node);
  G Meet(int value);
  G Dx(const Node& node, const G& dy);
  void Backward(int index, const G& dy);

  const Network& network_;
  const RuleFor& rule_for_;
  const bool scales_batch_norms_;
  const std::vector<bool> needs_;
  std::vector<Symbol> y_;
  std::vector<std::vector<G>> gradients_;  // by value, last consumer first
  Reference r_;
};

std::string ReferenceStep::FormulaOf(const Node& node) const {
  const config::LayerConfig& c = node.config;
  const auto window = [&](const char* name) {
    return Numbers(name, {1.0 * c.kernel[0], 1.0 * c.kernel[1], 1.0 * c.stride[0],
                          1.0 * c.stride[1], 1.0 * c.padding[0], 1.0 * c.padding[1]});
  };
  if (c.kind == "conv2d" || c.kind == "conv_transpose2d") {
    return Numbers(c.kind.c_str(),
                   {1.0 * c.stride[0], 1.0 * c.stride[1], 1.0 * c.padding[0], 1.0 * c.padding[1],
                    1.0 * c.dilation[0], 1.0 * c.dilation[1], 1.0 * c.groups});
  }
  if (c.kind == "max_pool") return window("max_pool");
  if (c.kind == "max_unpool")
    return window("max_unpool") + ToString(network_.nodes[node.pool].output);
  if (c.kind == "lrn") return Numbers("lrn", {1.0 * c.size[0], c.alpha, c.beta, c.k});
  if (c.kind == "l2_normalize") return Numbers("l2_normalize", {static_cast<float>(c.eps)});
  if (c.kind == "avg_pool") return window("avg_pool") + (c.count_include_pad ? "" : " inside");
  if (c.kind == "adaptive_avg_pool" && node.input.h % c.size[0] == 0 &&
      node.input.w % c.size[1] == 0) {
    const double h = 1.0 * node.input.h / c.size[0], w = 1.0 * node.input.w / c.size[1];
    return Numbers("avg_pool", {h, w, h, w, 0, 0});
  }
  if (c.kind == "slice") return Numbers("slice", {1.0 * c.first});
  if (IsBilinear(node)) return c.align_corners ? "bilinear, corners" : "bilinear";
  if (c.kind == "pixel_shuffle") return Numbers("pixel_shuffle", {1.0 * c.scale});
  if (c.kind == "softplus")
    return Numbers("softplus", {static_cast<float>(c.beta), static_cast<float>(c.threshold)});
  if (c.kind == "elu") return Numbers("elu", {static_cast<float>(c.alpha)});
  if (c.kind == "upsample") return Numbers("upsample", {1.0 * c.scale});
  if (c.kind == "stochastic_depth") {
    return Numbers(("stochastic_depth " + c.mode).c_str(), {static_cast<float>(c.rate)}) +
           std::to_string(StreamId(c.name));
  }
  if (c.kind == "layer_norm") return Numbers("layer_norm", {static_cast<float>(c.eps)});
  if (c.kind == "group_norm") {
    return Numbers("group_norm", {1.0 * c.groups, static_cast<float>(c.eps)});
  }
  if (c.kind == "global_avg_pool") {
    return Numbers("avg_pool", {1.0 * node.input.h, 1.0 * node.input.w, 1.0 * node.input.h,
                                1.0 * node.input.w, 0, 0});
  }
  if (c.kind == "shortcut") return Numbers("shortcut", {1.0 * c.stride[0], 1.0 * c.stride[1]});
  if (c.kind == "dropout") {
    return Numbers("dropout", {static_cast<float>(c.rate)}) + std::to_string(StreamId(c.name));
  }
  if (c.kind == "batch_norm") {
    return Numbers("batch_norm", {static_cast<float>(c.eps), static_cast<float>(c.momentum)});
  }
  if (c.kind == "hardtanh") {
    return Numbers("hardtanh", {static_cast<float>(c.min), static_cast<float>(c.max)});
  }
  if (c.kind == "leaky_relu") return Numbers("leaky_relu", {static_cast<float>(c.slope)});
  if (c.kind == "gelu" && c.approximate == "tanh") return "gelu tanh";
  return c.kind;
}

Symbol ReferenceStep::Forward(const Node& node) {
  std::vector<Symbol> x;
  for (const int value : node.inputs) x.push_back(y_[value]);
  if (IsMatmul(node)) {
    x.push_back(P(node, "weight"));
    x.push_back(node.config.bias ? P(node, "bias") : 0);
    Note(node.config.name, "w", {P(node, "weight"), 1});
  } else if (Is(node, "batch_norm") || IsGroupedNorm(node)) {
    x.push_back(P(node, "weight"));
    x.push_back(P(node, "bias"));
  } else if (Is(node, "channel_scale") || Is(node, "l2_normalize") || Is(node, "prelu")) {
    x.push_back(P(node, "weight"));
  } else if (Is(node, "affine")) {
    x.push_back(P(node, "factor"));
    x.push_back(P(node, "offset"));
  } else if (Is(node, "max_unpool")) {
    x.push_back(PositionsFor(node));
  }
  const Symbol y = Is(node, "add") ? AddSymbol(x) : Hash(FormulaOf(node), x);
  const bool exact = Is(node, "relu") || Is(node, "max_pool") || Is(node, "flatten") ||
                     Is(node, "shortcut") || (Is(node, "upsample") && !IsBilinear(node)) ||
                     Is(node, "pixel_shuffle") || Is(node, "max_unpool") || Is(node, "slice");
  if (!exact) Note(node.config.name, "y", {y, 1});
  return y;
}

// The gradient of a value: of its one consumer, or the sum over consumers in layer order.
ReferenceStep::G ReferenceStep::Meet(int value) {
  const std::vector<G>& all = gradients_[value];
  if (all.size() == 1) return all[0];
  std::vector<Symbol> symbols;
  float target = 0;
  for (auto g = all.rbegin(); g != all.rend(); ++g) {
    symbols.push_back(g->symbol);
    target = std::max(target, g->scale);
  }
  const G sum{Hash("sum", symbols), target};
  const std::string& name = network_.nodes[value - 1].config.name;
  Note(name, "dy", sum);
  r_.decisions.push_back("branch " + name);
  return sum;
}

ReferenceStep::G ReferenceStep::Dx(const Node& node, const G& dy) {
  const std::string f = FormulaOf(node) + " dx";
  const Symbol x = y_[node.inputs[0]];
  if (IsMatmul(node)) {
    r_.decisions.push_back(node.config.name);
    const float alpha = AlphaOf(rule_for_({node.config.name, 0, 0, kFp16, true}));
    return {Hash(f, {P(node, "weight"), dy.symbol}), dy.scale * alpha};
  }
  if (Is(node, "scale")) {
    r_.decisions.push_back(node.config.name);
    const float alpha = AlphaOf(rule_for_({node.config.name, 1, 1, kFp16, false}));
    return {Hash(f, {dy.symbol}), dy.scale * alpha};
  }
  if (Is(node, "batch_norm")) {
    float alpha = 1;
    if (scales_batch_norms_) {
      r_.decisions.push_back(node.config.name);
      alpha = AlphaOf(rule_for_({node.config.name, 1, 1, kFp16, true}));
    }
    return {Hash(f, {x, P(node, "weight"), dy.symbol}), dy.scale * alpha};
  }
  if (IsGroupedNorm(node) || Is(node, "prelu"))
    return {Hash(f, {x, P(node, "weight"), dy.symbol}), dy.scale};
  if (Is(node, "l2_normalize")) return {Hash(f, {x, P(node, "weight"), dy.symbol}), dy.scale};
  if (Is(node, "lrn")) return {Hash(f, {x, dy.symbol}), dy.scale};
  if (Is(node, "max_unpool")) return {Hash(f, {PositionsFor(node), dy.symbol}), dy.scale};
  if (Is(node, "affine")) return {Hash(f, {P(node, "factor"), dy.symbol}), dy.scale};
  if (Is(node, "channel_scale")) return {Hash(f, {P(node, "weight"), dy.symbol}), dy.scale};
  const Symbol y = Hash(FormulaOf(node), {x});
  if (IsActivation(node) || Is(node, "lrn")) return {Hash(f, {x, dy.symbol}), dy.scale};
  if (Is(node, "relu")) return {Hash("mask", {y, dy.symbol}), dy.scale};
  if (Is(node, "max_pool")) return {Hash(f, {x, y, dy.symbol}), dy.scale};
  return {Hash(f, {dy.symbol}), dy.scale};
}

void ReferenceStep::Backward(int index, const G& dy) {
  const Node& node = network_.nodes[index];
  const std::string& name = node.config.name;
  const std::string f = FormulaOf(node);
  const Symbol x = y_[node.inputs[0]];
  if (Is(node, "add")) {  // the sum takes its branches in the order of its inputs
    for (auto value = node.inputs.rbegin(); value != node.inputs.rend(); ++value) {
      if (needs_[*value]) gradients_[*value].push_back(dy);
    }
    return;
  }
  if (Is(node, "concat") || Is(node, "concat_boxes")) {
    for (std::size_t i = node.inputs.size(); i-- > 0;) {
      const int value = node.inputs[i];
      if (needs_[value]) gradients_[value].push_back({Hash(f + " dx", {dy.symbol, i}), dy.scale});
    }
    return;
  }
  if (Is(node, "multiply")) {
    std::vector<G> dx;
    for (std::size_t i = 0; i < 2; ++i) {
      dx.push_back({Hash("multiply dx", {y_[node.inputs[1 - i]], dy.symbol}), dy.scale});
      if (needs_[node.inputs[i]]) Note(name, i == 0 ? "dx" : "dx2", dx[i]);
    }
    for (const std::size_t i : {1u, 0u})
      if (needs_[node.inputs[i]]) gradients_[node.inputs[i]].push_back(dx[i]);
    return;
  }
  if (IsGroupedNorm(node)) {
    r_.gradients[name + ".weight"] = Hash(f + " dgamma", {x, dy.symbol});
    r_.gradients[name + ".bias"] = Hash(f + " dbeta", {dy.symbol});
  } else if (Is(node, "l2_normalize")) {
    r_.gradients[name + ".weight"] = Hash(f + " dgamma", {x, dy.symbol});
  } else if (Is(node, "channel_scale") || Is(node, "prelu")) {
    r_.gradients[name + ".weight"] = Hash(f + " dw", {x, dy.symbol});
  }
  if (IsMatmul(node)) {
    r_.gradients[name + ".weight"] = Hash(f + " dw", {x, dy.symbol});
    if (node.config.bias) r_.gradients[name + ".bias"] = Hash(f + " db", {dy.symbol});
    Note(name, "dw", {r_.gradients[name + ".weight"], 1});
  } else if (Is(node, "batch_norm")) {
    r_.gradients[name + ".weight"] = Hash(f + " dgamma", {x, dy.symbol});
    r_.gradients[name + ".bias"] = Hash(f + " dbeta", {dy.symbol});
  }
  if (!needs_[node.inputs[0]]) return;
  const G dx = Dx(node, dy);
  const bool overlap = node.config.kernel[0] > node.config.stride[0] ||
                       node.config.kernel[1] > node.config.stride[1];
  const bool exact = Is(node, "relu") || Is(node, "flatten") || Is(node, "shortcut") ||
                     Is(node, "slice") || Is(node, "pixel_shuffle") || Is(node, "relu6") ||
                     Is(node, "hardtanh") || Is(node, "max_unpool") ||
                     (Is(node, "max_pool") && !overlap);
  if (!exact) Note(name, "dx", dx);
  gradients_[node.inputs[0]].push_back(dx);
}

}  // namespace

Reference ReferenceOf(const Network& network, const RuleFor& rule_for, bool scales_batch_norms) {
  return ReferenceStep(network, rule_for, scales_batch_norms).Run();
}

}  // namespace ada::graph::test
