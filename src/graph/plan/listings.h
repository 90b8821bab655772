// The lists of what a graph rounds, decides and shows (graph/log_points.h), in the order of the
// unfused execution whatever is fused. To be made when all ops are.
#pragma once
#include <vector>

#include "graph/bindings.h"

namespace ada::graph {

// All roundings, the network's input first (unless it is tokens); without training the forward
// pass.
std::vector<RoundingPoint> ListRoundings(const Bindings& bindings);
std::vector<ScalePoint> ListScales(const Bindings& bindings);
// Those of `roundings` that have a per-tensor scale, in the same order.
std::vector<ScaledTensor> ListScaledTensors(const Bindings& bindings,
                                            const std::vector<RoundingPoint>& roundings);

// Which tensors an observer is shown, and when: after which call they lie in memory. Graphs that do
// not train have no `backward`.
ObservationPlan ListObserved(const Bindings& bindings);

}  // namespace ada::graph
