// Ready networks by name (model.zoo), written out as the layers a user could have written.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "core/task.h"

namespace ada::graph {

// The layers of `model.zoo` with its parameters (classes, shortcut, hidden, dropout, width, ...).
// Each layer's place is that of the model section. Throws ConfigError on an unknown name or
// shortcut.
std::vector<config::LayerConfig> ExpandZoo(const config::ModelConfig& model);

// The names of the layers whose outputs the loss is of: those of model.outputs, a zoo network's own
// ones, else the last of `layers`.
std::vector<std::string> OutputNames(const config::ModelConfig& model,
                                     const std::vector<config::LayerConfig>& layers);

// Throws ConfigError where the zoo network is made for another task. Other models pass.
void CheckZooTask(const config::ModelConfig& model, Task task);

// The names that ExpandZoo knows, in the order of ListModels.
const std::vector<std::string>& ZooNames();

// One line each for `ada-train models`: name, parameters, MFLOP (forward, one image, a multiply-add
// counted as 2) on its usual input, and the keys that shape it.
std::vector<std::string> ListModels();

}  // namespace ada::graph
