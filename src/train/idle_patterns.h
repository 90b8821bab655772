// Globs of the configuration that match nothing in the network: likely slips of the pen.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "graph/graph.h"

namespace ada::train {

// One line of warning for each glob on layers (precision.layers, scaling.layers, those of
// log.what_if, log.dump) and on parameters (optimizer.no_decay) that matches none, with the place
// where it was written.
std::vector<std::string> IdlePatterns(const config::Config& config, const graph::Graph& graph);

}  // namespace ada::train
