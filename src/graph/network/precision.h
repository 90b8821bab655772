// From the configuration's `precision` section to what a graph asks: formats by layer and role.
#pragma once
#include <string>

#include "config/config.h"
#include "graph/graph.h"

namespace ada::graph {

// The formats of one layer. `format` gives activations, weights and gradients, a role's key beats
// it; weight_gradients is fp32 unless set. Then the entries of `precision.layers` whose glob
// matches the name, one after the other: an entry's `format` and role keys replace what stood
// before them. `overflow: saturate` makes every format but fp32 saturate.
LayerFormats FormatsOf(const config::PrecisionConfig& precision, const std::string& layer);

// `policy_owns_gradients`: the policy gives layers scales of their own, so that under delayed
// scaling gradients get none beside it. Keeps a copy of `precision`. Fp32 tensors never have a
// scale of their own.
Precision ResolvePrecision(const config::PrecisionConfig& precision, bool policy_owns_gradients);

}  // namespace ada::graph
