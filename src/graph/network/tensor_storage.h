// How each value and gradient of a network is kept: which format it is rounded to, in which storage
// it lies, and whether it has a per-tensor scale. src/README.md, "What is rounded".
#pragma once
#include <map>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/network/shapes.h"

namespace ada::graph {

struct TensorStorage {
  NumberFormat format = kFp32;
  Storage storage = Storage::kF32;
  bool has_per_tensor_scale = false;  // delayed scaling; then storage is fp32, and format not
  friend bool operator==(const TensorStorage&, const TensorStorage&) = default;
};

// What is rounded within an attention.
struct AttentionStorage {
  TensorStorage p, ds;
  bool rounds_p = true, rounds_ds = true;
  // How the gradients that it hands on are stored: the layer's own.
  TensorStorage gradients;
  // Gradients of scores that are not rounded have no alpha.
  bool Decides(std::string_view tensor) const { return tensor != "ds" || rounds_ds; }
};

struct NetworkStorage {
  // By value. A layer that does not round its output keeps its input's.
  std::vector<TensorStorage> values;
  // By value: of a gradient of it that is rounded. It has the gradient format of the layer that
  // made the value; where that one rounds nothing, of the layer that made its input, and so on.
  std::vector<TensorStorage> gradients;
  // By value: of its gradient as it reaches the layer that made it, its dy. Not that of `gradients`
  // where its one consumer rounds no gradient and hands on what it got (relu, an addition).
  std::vector<TensorStorage> arriving;
  // By node: of the weights as they are multiplied, and of dw (always kept in fp32).
  std::vector<TensorStorage> weights, weight_gradients;
  std::map<int, AttentionStorage> attention;  // by node
  std::vector<LayerOperands> operands;        // by node: of those with a weight
};

NetworkStorage ResolveStorage(const Network& network, const Precision& precision);

}  // namespace ada::graph
