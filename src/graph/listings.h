// The lists of what a graph rounds, decides and shows.
#pragma once
#include <vector>

#include "graph/bindings.h"

namespace ada::graph {

// The lists of what a graph rounds, decides and shows (graph/log_points.h) are in the order of an
// unfused execution even where layers are fused, and are to be made after all ops. ListRoundings
// returns all roundings, starting with the network's input (unless it is tokens); those of the
// forward pass only in a graph that does not train.
std::vector<RoundingPoint> ListRoundings(const Bindings& bindings);
std::vector<SumPoint> ListSums(const Bindings& bindings);
std::vector<SumPoint> ListJudgedSums(const Bindings& bindings);
std::vector<ScalePoint> ListScales(const Bindings& bindings);
// Those of `roundings` that have a per-tensor scale, in the same order.
std::vector<ScaledTensor> ListScaledTensors(const Bindings& bindings,
                                            const std::vector<RoundingPoint>& roundings);

// Which tensors are shown to an observer, and after which call, that is, when they are in memory.
// For graphs that do not train, `backward` is empty.
ObservationPlan ListObserved(const Bindings& bindings);

}  // namespace ada::graph
