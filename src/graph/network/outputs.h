// The outputs of a network, which the loss reads: found by name, and checked against what the
// task's loss takes (Resolve in shapes.h says it).
#pragma once
#include <vector>

#include "config/config.h"
#include "core/task.h"
#include "graph/network/shapes.h"

namespace ada::graph {

// Values. Throws ConfigError where a name of model.outputs is unknown or stands twice, or where the
// task's loss takes another number of outputs.
std::vector<int> FindOutputs(const config::ModelConfig& model,
                             const std::vector<config::LayerConfig>& layers, Task task);

// Throws ConfigError, naming the layer, where an output has another shape than the loss takes.
void CheckOutputs(const Network& network, const config::ModelConfig& model, Task task);

}  // namespace ada::graph
