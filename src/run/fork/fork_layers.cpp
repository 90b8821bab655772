// The format of each tensor of each layer, derived from the network before a graph is built.
#include "graph/network/shapes.h"
#include "graph/network/tensor_storage.h"
#include "run/fork/fork.h"
#include "run/fork/fork_training.h"
#include "step/specs.h"

namespace ada::run {

namespace {

// Fewest mantissa bits decide; of equals the first that is looked at.
NumberFormat Narrowest(const ForkLayer& layer, const graph::LayerOperands& operands) {
  NumberFormat narrowest = kFp32;
  const auto take = [&](const NumberFormat& format) {
    if (format.mantissa_bits < narrowest.mantissa_bits) narrowest = format;
  };
  take(layer.activations);
  take(layer.weights);
  take(layer.gradients);
  for (const graph::OperandRule& rule : operands.rules)
    if (rule.rounds) take(rule.format);
  return narrowest;
}

}  // namespace

std::vector<ForkLayer> ForkSource::Layers(const config::PrecisionConfig& precision) const {
  config::Config config = config_;
  config.precision = precision;
  const graph::Network network = graph::Resolve(config.model, data_.image, config.task);
  const graph::NetworkStorage storage =
      graph::ResolveStorage(network, step::EvaluationGraph(config, data_.image).precision);
  std::vector<ForkLayer> layers;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const graph::Node& node = network.nodes[i];
    ForkLayer layer;
    layer.name = node.config.name;
    layer.trained = node.trained_numel() > 0;
    layer.has_weight = node.kind->has_weight;
    if (node.rounds_output()) {
      layer.activations = storage.values[i + 1].format;
      layer.gradients = storage.product_gradients[i + 1].format;  // the narrower, where they differ
    }
    if (network.MultipliesWeight(static_cast<int>(i))) layer.weights = storage.weights[i].format;
    // The format in which a rounding error of this layer is measured (ForkLayer::unit).
    layer.unit = layer.weights == kFp32 ? layer.activations : layer.weights;
    // Layers that sum a weight gradient of their own; a tied weight's gradient belongs to the layer
    // that it is tied to.
    const bool sums = (node.kind->has_weight && node.tied_to < 0) || node.kind->gathers_weight;
    layer.rounds =
        layer.activations != kFp32 || layer.gradients != kFp32 || layer.weights != kFp32 ||
        (sums && storage.weight_gradients[i].format != kFp32) || storage.operands[i].any();
    layer.narrowest = Narrowest(layer, storage.operands[i]);
    layers.push_back(layer);
  }
  return layers;
}

}  // namespace ada::run
