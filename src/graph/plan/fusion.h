// Which layers one op computes together: batch norm, then an addition, then relu. Only the places
// of execution change; roundings, names and logs stay those of the parts.
#pragma once
#include <set>
#include <vector>

#include "graph/network/shapes.h"

namespace ada::graph {

// A batch norm and what follows it, as nodes; -1: not part of the chain. consumer: the convolution
// or linear layer that computes the chain's output anew each time it reads it
// (backend::RecomputedNorm), so that nobody stores it.
struct Chain {
  int batch_norm = -1, add = -1, relu = -1;
  int consumer = -1;
  int last() const { return relu >= 0 ? relu : add >= 0 ? add : batch_norm; }
};

// What is not to be fused.
struct FusionLimits {
  bool recompute = true;    // false: no chain has a consumer
  std::set<int> unchained;  // batch norms that start no chain with an addition or a relu
  std::set<int> stored;     // batch norms whose chain has no consumer
};

// The chains of at least two layers (the consumer is one) in which each output inside the chain has
// one consumer. An addition takes part with two inputs, and with the first of them where both
// could. A relu takes part only where the gradient of its output belongs to it alone, because the
// op masks it in place: its one consumer must not be an addition (which hands one gradient to all
// its inputs). After an addition the masked gradient is also that of the other input: there no
// layer with a rule may read it, since nobody takes the moments of a masked gradient for it. A
// chain without an addition has a consumer where a product alone reads its output; it then masks
// its dx in place.
std::vector<Chain> FindChains(const Network& network, const FusionLimits& limits);

}  // namespace ada::graph
