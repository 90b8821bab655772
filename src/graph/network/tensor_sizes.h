// How large the tensors of a network are, before any of them exists: for bounds and for messages.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/network/shapes.h"

namespace ada::graph {

// For the message of a run that has no memory left (train/memory_need.cpp), and for RefuseHuge.
struct TensorSize {
  std::string name;  // "conv1.weight", "conv1.y"
  double bytes = 0;
};

// The `count` largest parameters and outputs of the network that `spec` describes. Throws as
// Resolve does.
std::vector<TensorSize> LargestTensors(const GraphSpec& spec, std::size_t count);

// Throws ConfigError naming the largest tensor where all of them, for `images` images, would take
// more than any machine has: from there on sizes would not fit into the numbers that count them.
void RefuseHuge(const Network& network, std::int64_t images, const Location& where);

}  // namespace ada::graph
