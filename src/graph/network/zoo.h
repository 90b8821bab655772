// Ready networks by name (model.zoo), written out as the layers a user could have written.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"

namespace ada::graph {

// The layers of `model.zoo` with its parameters (classes, shortcut, hidden, dropout). Each layer's
// place is that of the model section. Throws ConfigError on an unknown name or shortcut.
std::vector<config::LayerConfig> ExpandZoo(const config::ModelConfig& model);

// The names that ExpandZoo knows, in the order of ListModels.
const std::vector<std::string>& ZooNames();

// One line each for `ada-train models`: name, parameters, MFLOP (forward, one image, a multiply-add
// counted as 2) on its usual input, and the keys that shape it.
std::vector<std::string> ListModels();

}  // namespace ada::graph
