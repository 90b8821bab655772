// What the configuration says to no effect: likely slips of the pen.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"

namespace ada::train {

// One line of warning for each glob on layers (precision.layers, scaling.layers, those of
// log.what_if, log.dump) and on parameters (optimizer.no_decay) that matches none, and for each
// switch of the precision after the last step, with the place where it was written.
std::vector<std::string> UnusedGlobs(const config::Config& config, const graph::Graph& graph,
                                     std::int64_t total_steps);

}  // namespace ada::train
