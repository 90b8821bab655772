#include "graph/network/tensor_sizes.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "graph/network/tensor_storage.h"

namespace ada::graph {
namespace {

// Doubles can hold sums of sizes that no 64-bit integer could.
constexpr double kMostBytes = 0x1p42;  // 4 TiB

double Values(const Shape& shape) {
  return static_cast<double>(shape.n) * static_cast<double>(shape.h) *
         static_cast<double>(shape.w) * static_cast<double>(shape.c);
}

// storage: null: all in fp32.
// Parameters, masters in fp32, and outputs; neither gradients nor what ops keep. Largest first.
std::vector<TensorSize> TensorSizes(const Network& network, const NetworkStorage* storage,
                                    std::int64_t images) {
  std::vector<TensorSize> sizes;
  for (std::size_t i = 0; i < network.nodes.size(); ++i) {
    const Node& node = network.nodes[i];
    for (const ParameterSpec& p : node.parameters)
      sizes.push_back({node.config.name + "." + p.name, Values(p.shape) * sizeof(float)});
    const Storage kept = storage != nullptr ? storage->values[i + 1].storage : Storage::kF32;
    sizes.push_back({node.config.name + ".y", Values(node.output) * static_cast<double>(images) *
                                                  static_cast<double>(BytesOf(kept))});
  }
  std::stable_sort(sizes.begin(), sizes.end(),
                   [](const TensorSize& a, const TensorSize& b) { return a.bytes > b.bytes; });
  return sizes;
}

}  // namespace

std::vector<TensorSize> LargestTensors(const GraphSpec& spec, std::size_t count) {
  const Network network = Resolve(*spec.model, spec.input, spec.task);
  const NetworkStorage storage = ResolveStorage(network, spec.precision);
  std::vector<TensorSize> sizes = TensorSizes(network, &storage, spec.input.n);
  sizes.resize(std::min(sizes.size(), count));
  return sizes;
}

void RefuseHuge(const Network& network, std::int64_t images, const Location& where) {
  const std::vector<TensorSize> sizes = TensorSizes(network, nullptr, images);
  double bytes = 0;
  for (const TensorSize& size : sizes) bytes += size.bytes;
  if (bytes <= kMostBytes) return;
  throw ConfigError(PlacePrefix(where) + "model: its tensors would take " +
                    HumanBytes(static_cast<std::uint64_t>(std::min(bytes, 0x1p63))) +
                    ", expected at most " + HumanBytes(static_cast<std::uint64_t>(kMostBytes)) +
                    "; the largest is " + sizes.front().name + " with " +
                    HumanBytes(static_cast<std::uint64_t>(sizes.front().bytes)));
}

}  // namespace ada::graph
