// The layer table of --dry-run as lines of text. Knows no policy: its words are passed in.
#pragma once
#include <string>
#include <vector>

#include "graph/graph.h"

namespace ada::graph {

// A header, one line per layer (name, kind, output shape, parameters, MFLOP, format, policy) and
// the totals, in aligned columns. `policies` has one word per layer, or is empty (no such column).
std::vector<std::string> LayerTable(const std::vector<LayerRow>& layers,
                                    const std::vector<std::string>& policies);

}  // namespace ada::graph
