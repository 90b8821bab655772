// The predefined networks: their layers, and their list (`ada-train models`).
#pragma once
#include <string>
#include <vector>

#include "config/model_config.h"
#include "io/task.h"
#include "number/tensor.h"

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

// A row of the zoo. usual_input and usual_classes are those of the data it was designed for, which
// only lists use. keys: the keys of `model` that change the network, for the list.
struct ZooModel {
  std::string name;
  Shape usual_input;
  const char* keys;
  std::vector<config::LayerConfig> (*expand)(const config::ModelConfig&);
  int usual_classes = 10;
  Task task = Task::kClassification;
};
// In the order of lists.
const std::vector<ZooModel>& ZooModels();

// The names that ExpandZoo knows, in that order.
const std::vector<std::string>& ZooNames();

// One line each: name, parameters, MFLOP (forward, one image, a multiply-add counted as 2) on its
// usual input, and the keys that shape it.
std::vector<std::string> ListModels();

}  // namespace ada::graph
