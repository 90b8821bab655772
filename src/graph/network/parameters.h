// The parameters of a network: names and dims as in PyTorch, memory from the backend.
#pragma once
#include <vector>

#include "graph/graph.h"
#include "graph/network/shapes.h"

namespace ada::graph {

struct NetworkParameters {
  std::vector<Parameter> all;  // in layer order
  std::vector<int> first;      // by node: where its own begin
};

// Values are those of `share` where it is given (the same network), else new and zero; gradients
// are made where `training`.
NetworkParameters MakeParameters(const Network& network, bool training, backend::Backend& backend,
                                 const Graph* share);

}  // namespace ada::graph
