// The lists of what a graph rounds, decides and shows (graph/log_points.h), in the order of the
// unfused execution whatever is fused. To be made when all ops are.
#pragma once
#include <vector>

#include "graph/bindings.h"

namespace ada::graph {

// All roundings but the network's input; of a graph that does not train those of the forward pass.
std::vector<RoundingPoint> ListRoundings(const Bindings& bindings);
std::vector<ScalePoint> ListScales(const Bindings& bindings);
// The input first, then those of `roundings` that have a per-tensor scale.
std::vector<ScaledTensor> ListScaledTensors(const Bindings& bindings,
                                            const std::vector<RoundingPoint>& roundings);

// Which tensors an observer is shown, and when: after which call they lie in memory. Graphs that do
// not train have no `backward`.
ObservationPlan ListObserved(const Bindings& bindings);

}  // namespace ada::graph
