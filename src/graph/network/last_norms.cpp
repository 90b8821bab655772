#include "graph/network/last_norms.h"

#include <algorithm>

namespace ada::graph {
namespace {

// Layers on the longest way from the input to each value.
std::vector<int> Depths(const Network& network) {
  std::vector<int> depths = {0};
  for (const Node& node : network.nodes) {
    int depth = 0;
    for (const int input : node.inputs)
      depth = std::max(depth, depths[static_cast<std::size_t>(input)]);
    depths.push_back(depth + 1);
  }
  return depths;
}

}  // namespace

std::vector<std::string> LastNorms(const Network& network) {
  const std::vector<int> depths = Depths(network);
  std::vector<std::string> names;
  for (const Node& node : network.nodes) {
    if (node.kind->chain != ChainPart::kSum) continue;
    const int deepest =
        *std::max_element(node.inputs.begin(), node.inputs.end(), [&](int a, int b) {
          return depths[static_cast<std::size_t>(a)] < depths[static_cast<std::size_t>(b)];
        });
    // The network's input itself is added: no layer to look at.
    if (deepest == 0) continue;
    const Node& from = network.nodes[static_cast<std::size_t>(deepest - 1)];
    if (from.kind->chain == ChainPart::kNorm) names.push_back(from.config.name);
  }
  return names;
}

}  // namespace ada::graph
