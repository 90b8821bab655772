// The list of predefined networks (`ada-train models`).
#pragma once
#include <string>
#include <vector>

namespace ada::graph {

// One line each: name, parameters, MFLOP (forward, one image, a multiply-add counted as 2) on its
// usual input, and the keys that shape it.
std::vector<std::string> ListModels();

}  // namespace ada::graph
