#include "graph/network/autocast.h"

#include <algorithm>

namespace ada::graph {
namespace {

// By value: whether torch would hold it in fp32. Layers come in order, so that inputs are known.
std::vector<bool> IsWide(const Network& network, bool on_cpu) {
  std::vector<bool> wide = {true};
  for (const Node& node : network.nodes) {
    const bool reads_wide = std::any_of(node.inputs.begin(), node.inputs.end(), [&](int input) {
      return wide[static_cast<std::size_t>(input)];
    });
    const bool low = node.kind->has_weight || node.kind->autocast_low;
    const bool listed = on_cpu ? node.kind->autocast_cpu_fp32 : node.kind->autocast_fp32;
    wide.push_back(!low && (listed || reads_wide));
  }
  return wide;
}

// Whether only matmuls read a value, be it through layers that only move values.
// From the last value to the first: a layer that only moves values passes on what its readers are.
std::vector<bool> AreForMatmuls(const Network& network) {
  const auto consumers = network.Consumers();
  std::vector<bool> all(consumers.size());
  for (std::size_t value = consumers.size(); value-- > 0;) {
    const std::vector<int>& readers = consumers[value];
    const bool for_loss = network.IsOutput(static_cast<int>(value));
    all[value] = !readers.empty() && !for_loss &&
                 std::all_of(readers.begin(), readers.end(), [&](int reader) {
                   const Node& node = network.nodes[static_cast<std::size_t>(reader)];
                   return node.kind->has_weight || node.kind->autocast_low ||
                          (!node.rounds_output() && all[static_cast<std::size_t>(reader) + 1]);
                 });
  }
  return all;
}

}  // namespace

std::vector<LayerFormats> AutocastFormats(const Network& network, const NumberFormat& low,
                                          bool on_cpu) {
  const std::vector<bool> wide = IsWide(network, on_cpu), for_products = AreForMatmuls(network);
  std::vector<LayerFormats> formats;
  for (std::size_t value = 0; value < wide.size(); ++value) {
    const NumberFormat& format = wide[value] && !for_products[value] ? kFp32 : low;
    formats.push_back({format, low, format, kFp32});
  }
  return formats;
}

}  // namespace ada::graph
