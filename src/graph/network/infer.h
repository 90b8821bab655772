// The rule of each kind of layer: what it accepts, the shape it gives, what it costs. Inside the
// room only; shapes.h is its public face.
#pragma once
#include <string>
#include <vector>

#include "graph/network/shapes.h"

namespace ada::graph {

struct InputShape {
  std::string name;  // of the layer, for messages
  Shape shape;       // n = 1
};

// The kind a layer names; ConfigError with the nearest where there is none.
Kind KindOf(const config::LayerConfig& layer);

// Checks `inputs` and fills input, output, parameters and mflop of `node`. Throws ConfigError.
void Infer(Node& node, const std::vector<InputShape>& inputs);

// Throws ConfigError "file:line:column: layer NAME: message".
[[noreturn]] void FailLayer(const config::LayerConfig& layer, const std::string& message);

}  // namespace ada::graph
