#include "graph/network/tensor_storage.h"

#include "graph/network/autocast.h"

namespace ada::graph {
namespace {

// An fp32 tensor loses nothing that a scale could save, so it has none.
TensorStorage StoredAs(const NumberFormat& format, bool scaled) {
  const bool has_own_scale = scaled && format != kFp32;
  return {format, has_own_scale ? Storage::kF32 : StorageFor(format), has_own_scale};
}

std::vector<TensorStorage> Arriving(const Network& network,
                                    const std::vector<TensorStorage>& gradients) {
  const auto consumers = network.Consumers();
  std::vector<TensorStorage> arriving = gradients;
  for (std::size_t value = network.nodes.size(); value-- > 0;) {
    const std::vector<int>& after = consumers[value];
    if (after.size() != 1 || network.IsOutput(static_cast<int>(value)) ||
        network.nodes[after[0]].rounds_gradient()) {
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
  if (precision.autocast) autocast = AutocastFormats(network, *precision.autocast);
  const LayerFormats& input = autocast.empty() ? precision.base : autocast.front();
  result.values.push_back(StoredAs(input.activations, precision.scaled_forward));
  result.gradients.push_back(StoredAs(input.gradients, precision.scaled_backward));
  for (const Node& node : network.nodes) {
    const LayerFormats formats =
        !autocast.empty() ? precision.formats_from(node.config.name, autocast[result.values.size()])
        : precision.formats_of ? precision.formats_of(node.config.name)
                               : precision.base;
    if (node.kind->rounds_output) {
      result.values.push_back(StoredAs(formats.activations, precision.scaled_forward));
      result.gradients.push_back(StoredAs(formats.gradients, precision.scaled_backward));
    } else {
      const TensorStorage value = result.values[node.inputs[0]],
                          gradient = result.gradients[node.inputs[0]];
      result.values.push_back(value);
      result.gradients.push_back(gradient);
    }
    result.weights.push_back(StoredAs(formats.weights, precision.scaled_forward));
    result.weight_gradients.push_back({formats.weight_gradients, Storage::kF32, false});
  }
  result.arriving = Arriving(network, result.gradients);
  return result;
}

}  // namespace ada::graph
