// Which layer's own gradients overflowed, for policies that keep a scale of every layer
// (layerwise_dynamic): known on the host when an attempt is over, and to the optimizer before.
#pragma once
#include <functional>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "scaling/policy.h"

namespace ada::train {

// The roundings of all dx and dw that count for some layer.
std::vector<backend::WatchedRounding> WatchedRoundings(const graph::Graph& graph);

// Fills layer_overflow for every layer that has a scale: its dx and dw; the logit gradient counts
// for the last layer, whose scale it carries. All layers, where the attempt overflowed and none can
// be named. stats_of: of the graph's i-th rounding.
void NoteLayerOverflow(const graph::Graph& graph,
                       const std::function<const TensorStats&(std::size_t)>& stats_of,
                       scaling::Attempt& attempt);

}  // namespace ada::train
