#include "graph/network/tensor_storage.h"

#include <algorithm>

#include "graph/network/autocast.h"

namespace ada::graph {
namespace {

// An fp32 tensor loses nothing that a scale could save, so it has none. A scale from the past puts
// the largest magnitude at the format's end, and the next one may be larger: such a tensor
// saturates, as Transformer Engine's casts do, unless the configuration says otherwise.
// Under delayed scaling values times the scale are rounded to the format and kept divided again,
// which the format's storage could not hold: they lie in fp32.
TensorStorage StoredAs(NumberFormat format, bool scaled, bool saturates) {
  const bool has_per_tensor_scale = scaled && format != kFp32;
  if (has_per_tensor_scale && saturates) format.saturate = true;
  return {format, has_per_tensor_scale ? Storage::kF32 : StorageFor(format), has_per_tensor_scale};
}

// From the last value to the first: what a consumer hands on is known before the value that it
// reads.
std::vector<TensorStorage> Arriving(const Network& network,
                                    const std::vector<TensorStorage>& gradients,
                                    const std::map<int, AttentionStorage>& attention) {
  const auto consumers = network.Consumers();
  std::vector<TensorStorage> arriving = gradients;
  for (std::size_t value = network.nodes.size(); value-- > 0;) {
    const std::vector<int>& after = consumers[value];
    if (after.size() != 1 || network.IsOutput(static_cast<int>(value)) ||
        network.nodes[after[0]].rounds_gradient()) {
      // The joined gradient of a fused input has the format of the layer that made it.
      if (after.size() == 1 && attention.contains(after[0]) &&
          network.nodes[after[0]].inputs.size() > 1)
        arriving[value] = attention.at(after[0]).gradients;
      continue;
    }
    arriving[value] = arriving[after[0] + 1];
  }
  return arriving;
}

}  // namespace

NetworkStorage ResolveStorage(const Network& network, const Precision& precision) {
  NetworkStorage result;
  std::vector<LayerFormats> autocast;  // by value
  if (precision.autocast)
    autocast = AutocastFormats(network, *precision.autocast, precision.autocast_on_cpu);
  const auto forward = [&](const NumberFormat& format) {
    return StoredAs(format, precision.scaled_forward, precision.scaled_saturate);
  };
  const auto backward = [&](const NumberFormat& format) {
    return StoredAs(format, precision.scaled_backward, precision.scaled_saturate);
  };
  int product = 0;  // of the layers with weights
  const auto products =
      static_cast<int>(std::count_if(network.nodes.begin(), network.nodes.end(),
                                     [](const Node& node) { return node.kind->has_weight; }));
  const LayerFormats& input = autocast.empty() ? precision.base : autocast.front();
  result.values.push_back(forward(input.activations));
  result.gradients.push_back(backward(input.gradients));
  for (const Node& node : network.nodes) {
    const LayerFormats formats =
        !autocast.empty() ? precision.formats_from(node.config.name, autocast[result.values.size()])
        : precision.formats_of ? precision.formats_of(node.config.name)
                               : precision.base;
    if (node.rounds_output()) {
      result.values.push_back(forward(formats.activations));
      result.gradients.push_back(backward(formats.gradients));
    } else {
      const TensorStorage value = result.values[node.inputs[0]],
                          gradient = result.gradients[node.inputs[0]];
      result.values.push_back(value);
      result.gradients.push_back(gradient);
    }
    if (!node.kind->decisions.empty()) {
      AttentionStorage within;
      within.p = forward(formats.activations);
      within.ds = within.gradients = backward(formats.gradients);
      within.rounds_p = !(formats.wide_probabilities.value_or(node.config.probabilities == "fp32"));
      within.rounds_ds =
          !(formats.wide_score_gradients.value_or(node.config.score_gradients == "fp32"));
      result.attention[static_cast<int>(result.weights.size())] = within;
    }
    result.weights.push_back(forward(formats.weights));
    result.weight_gradients.push_back({formats.weight_gradients, Storage::kF32, false});
    result.operands.emplace_back();
    // The first and last products of the network (precision.operands.spared) take operands as they
    // are stored. Tied layers count as products of their own.
    const bool spared =
        product < precision.spared.first || product >= products - precision.spared.last;
    if (!node.kind->has_weight) continue;
    if (precision.operands_of && !spared)
      result.operands.back() = precision.operands_of(node.config.name);
    ++product;
  }
  result.arriving = Arriving(network, result.gradients, result.attention);
  return result;
}

}  // namespace ada::graph
