// Which tensors a watcher is shown, and when: after which call they lie in memory.
#pragma once
#include <vector>

#include "graph/bindings.h"

namespace ada::graph {

// To be made when all ops are; graphs that do not train have no `backward`.
ObservationPlan ListObserved(const Bindings& bindings);

}  // namespace ada::graph
