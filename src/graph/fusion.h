// Which layers one op computes together: batch norm, then an addition, then relu. Only the places
// of execution change; roundings, names and logs stay those of the parts.
#pragma once
#include <set>
#include <vector>

#include "graph/shapes.h"

namespace ada::graph {

// A batch norm and what follows it, as nodes; -1: not part of the chain.
struct Chain {
  int batch_norm = -1, add = -1, relu = -1;
  int last() const { return relu >= 0 ? relu : add >= 0 ? add : batch_norm; }
};

// The chains of at least two layers in which each output inside the chain has one reader. An
// addition takes part with two inputs, and with the first of them where both could. A relu takes
// part only where the gradient of its output belongs to it alone, because the op masks it in place:
// its one reader must not be an addition (which hands one gradient to all its inputs). Behind an
// addition the masked gradient is also that of the other input: there no layer with a rule may read
// it, since nobody takes the moments of a masked gradient for it. Batch norms in `declined` start
// no chain.
std::vector<Chain> FindChains(const Network& network, const std::set<int>& declined);

}  // namespace ada::graph
