// The format of each tensor of each layer, derived from the network before a graph is built; and
// the start of a twin as a file, for trainings that are whole runs with folders of their own.
#include <span>

#include "graph/network/parameters.h"
#include "graph/network/shapes.h"
#include "graph/network/tensor_storage.h"
#include "io/tensor_files/safetensors.h"
#include "run/assemble/assemble.h"
#include "run/fork/fork.h"
#include "step/specs.h"
#include "step/weight_values.h"

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
  const auto take_all = [&](const auto& rules) {
    for (const graph::OperandRule& rule : rules)
      if (rule.rounds) take(rule.format);
  };
  take_all(operands.rules);
  take_all(operands.attention);
  return narrowest;
}

// The values of the weight that a layer multiplies by, its own or that of the layer it is tied to.
std::int64_t WeightNumel(const graph::Network& network, int node) {
  const graph::Node& own = network.nodes[static_cast<std::size_t>(node)];
  const int owner = own.weight_owner(node);
  for (const layers::ParameterSpec& parameter :
       network.nodes[static_cast<std::size_t>(owner)].parameters)
    if (parameter.name == "weight") return parameter.shape.numel();
  return 0;
}

// The operands of node `i`, which has a weight.
std::array<ForkOperand, kOperands> OperandsOf(const graph::Network& network,
                                              const graph::NetworkStorage& storage, std::size_t i) {
  const graph::Node& node = network.nodes[i];
  const std::int64_t weights = WeightNumel(network, static_cast<int>(i));
  const ForkOperand x{storage.values[static_cast<std::size_t>(node.inputs.front())].format,
                      node.input.numel()};
  const ForkOperand w{storage.weights[i].format, weights};
  const ForkOperand dy{storage.arriving[i + 1].format, node.output.numel()};
  std::array<ForkOperand, kOperands> operands = {x, w, dy, w, x, dy};  // the order of Operand
  for (std::size_t k = 0; k < kOperands; ++k)
    if (storage.operands[i].rules[k].rounds)
      operands[k].format = storage.operands[i].rules[k].named();
  return operands;
}

}  // namespace

std::vector<ForkLayer> ForkSource::Layers(const config::PrecisionConfig& precision) const {
  return LayersOf(config_, data_.image, precision);
}

std::vector<ForkLayer> LayersOf(config::Config config, const Shape& image,
                                const config::PrecisionConfig& precision) {
  config.precision = precision;
  const graph::Network network = graph::Resolve(config.model, image, config.task);
  const graph::NetworkStorage storage =
      graph::ResolveStorage(network, step::EvaluationGraph(config, image).precision);
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
    if (layer.has_weight) layer.operands = OperandsOf(network, storage, i);
    layers.push_back(layer);
  }
  return layers;
}

// --- Twins ---

// A graph is built for its parameters alone; no step is computed.
void WriteTwinStart(const config::Config& config, const Shape& image, std::uint64_t twin,
                    const NumberFormat& unit, const std::string& path) {
  const ChosenBackend chosen = MakeBackend(config.device);
  backend::Backend& backend = *chosen.backend;
  const std::unique_ptr<scaling::Policy> policy = scaling::MakePolicy(config.scaling);
  const auto graph = graph::Graph::Build(step::TrainGraph(config, image, *policy), backend);
  graph::Initialize(*graph, config.model.init, config.seed, backend);
  ForkSpec spec;
  spec.precision = config.precision;
  spec.twin = twin;
  for (const graph::Parameter& parameter : graph->parameters()) spec.units[parameter.layer] = unit;
  MoveWeights(spec, *graph, backend);
  SafetensorsWriter writer;
  std::vector<std::vector<float>> values;  // which the writer refers to
  values.reserve(graph->parameters().size());
  for (const graph::Parameter& parameter : graph->parameters()) {
    values.push_back(step::HostValues(parameter.value, backend));
    writer.Add(parameter.name, parameter.dims, std::span<const float>(values.back()));
  }
  writer.WriteAtomically(path);
}

}  // namespace ada::run
