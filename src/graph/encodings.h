// How each value and gradient of a network is kept: which format it is rounded to, in which storage
// it lies, and whether it has a scale of its own. DESIGN, "Rounding points".
#pragma once
#include <vector>

#include "graph/graph.h"
#include "graph/shapes.h"

namespace ada::graph {

struct Encoding {
  NumberFormat format = kFp32;
  Storage storage = Storage::kF32;
  bool own_scale = false;  // delayed scaling; then storage is fp32, and format not
  friend bool operator==(const Encoding&, const Encoding&) = default;
};

struct Encodings {
  // By value. A layer that does not round its output keeps its input's.
  std::vector<Encoding> values;
  // By value: of a gradient of it that is rounded. It has the gradient format of the layer that
  // made the value; where that one rounds nothing, of the layer that made its input, and so on.
  std::vector<Encoding> gradients;
  // By value: of its gradient as it reaches the layer that made it, its dy. Not that of `gradients`
  // where its one reader rounds no gradient and hands on what it got (relu, an addition).
  std::vector<Encoding> arriving;
  // By node: of the weights as they are multiplied, and of dw (always kept in fp32).
  std::vector<Encoding> weights, weight_gradients;
};

Encodings ResolveEncodings(const Network& network, const Precision& precision);

}  // namespace ada::graph
