// The weights that a layer multiplies with: the master, rounded in the same way as its copy.
#pragma once
#include <vector>

#include "graph/graph.h"

namespace ada::step {

// fp32 values of a parameter or its gradient, in PyTorch's order.
std::vector<float> HostValues(const Tensor& tensor, backend::Backend& backend);

// Returns the master `weight` rounded as `point` (of tensor w) specifies. `pass`: that of the
// step's first micro-batch, which determines the random numbers of stochastic rounding.
std::vector<float> RoundedWeights(const graph::Parameter& weight, const graph::RoundingPoint& point,
                                  bool stochastic, const backend::Pass& pass,
                                  backend::Backend& backend);

// The parameter `weight` of a layer, which is another layer's where the two are tied; null where it
// has none.
const graph::Parameter* WeightOf(const graph::Graph& graph, const std::string& layer);

// How the copy of a weight is rounded that its layer, and those that are tied to it, multiply with;
// null where there is no such copy (a batch norm's).
const graph::RoundingPoint* CopyOf(const graph::Graph& graph, const graph::Parameter& weight);

}  // namespace ada::step
