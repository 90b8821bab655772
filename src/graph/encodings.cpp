// See encodings.h.
#include "graph/encodings.h"

namespace ada::graph {
namespace {

// An fp32 tensor loses nothing that a scale could save, so it has none.
Encoding Encode(const NumberFormat& format, bool scaled) {
  const bool own_scale = scaled && format != kFp32;
  return {format, own_scale ? Storage::kF32 : StorageFor(format), own_scale};
}

std::vector<Encoding> Arriving(const Network& network, const std::vector<Encoding>& gradients) {
  const auto consumers = network.Consumers();
  std::vector<Encoding> arriving = gradients;
  for (std::size_t value = network.nodes.size(); value-- > 0;) {
    const std::vector<int>& readers = consumers[value];
    if (readers.size() != 1 || network.nodes[readers[0]].rounds_gradient()) continue;
    arriving[value] = arriving[readers[0] + 1];
  }
  return arriving;
}

}  // namespace

Encodings ResolveEncodings(const Network& network, const Precision& precision) {
  Encodings result;
  result.values.push_back(Encode(precision.base.activations, precision.scaled_forward));
  result.gradients.push_back(Encode(precision.base.gradients, precision.scaled_backward));
  for (const Node& node : network.nodes) {
    const LayerFormats formats =
        precision.formats_of ? precision.formats_of(node.config.name) : precision.base;
    if (node.rounds_output()) {
      result.values.push_back(Encode(formats.activations, precision.scaled_forward));
      result.gradients.push_back(Encode(formats.gradients, precision.scaled_backward));
    } else {
      const Encoding value = result.values[node.inputs[0]],
                     gradient = result.gradients[node.inputs[0]];
      result.values.push_back(value);
      result.gradients.push_back(gradient);
    }
    result.weights.push_back(Encode(formats.weights, precision.scaled_forward));
    result.weight_gradients.push_back({formats.weight_gradients, Storage::kF32, false});
  }
  result.arriving = Arriving(network, result.gradients);
  return result;
}

}  // namespace ada::graph
