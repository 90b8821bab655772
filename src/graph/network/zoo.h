// Predefined networks by name (model.zoo), written as the layers that a user could have written.
#pragma once
#include <string>
#include <vector>

#include "config/config.h"
#include "io/task.h"

namespace ada::graph {

// The layers of `model.zoo` with its parameters (classes, shortcut, hidden, dropout, width, ...).
// The file position of each layer is that of the model section. Throws ConfigError if the name or
// the shortcut is unknown.
std::vector<config::LayerConfig> ExpandZoo(const config::ModelConfig& model);

// The names of the layers whose outputs the loss reads: those of model.outputs, or those of a zoo
// network, or else the last of `layers`.
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
