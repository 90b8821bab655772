// Which batch norms end the residual branches of a network.
#pragma once
#include <string>
#include <vector>

#include "graph/network/shapes.h"

namespace ada::graph {

// Among the values that each addition takes, the one with the most layers on its longest way from
// the input, where a batch norm gives it: its gamma is what model.init.zero_gamma sets to 0, so
// that a block begins as its shortcut. In layer order.
std::vector<std::string> LastNorms(const Network& network);

}  // namespace ada::graph
