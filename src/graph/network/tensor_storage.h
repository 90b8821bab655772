// How each value and gradient of a network is kept: its format, its storage, its scale, and how
// large all of them are.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/number_format.h"
#include "graph/graph.h"
#include "graph/network/precision.h"
#include "graph/network/shapes.h"

namespace ada::graph {

// How each value and gradient of a network is kept: which format it is rounded to, in which storage
// it lies, and whether it has a per-tensor scale. src/README.md, "What is rounded".

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

// How large the tensors of a network are, before any of them exists: for bounds and for messages.

// For the message of a run that has no memory left (train/plan/memory_need.cpp), and for
// RefuseHuge.
struct TensorSize {
  std::string name;  // "conv1.weight", "conv1.y"
  double bytes = 0;
};

// The `count` largest parameters and outputs of the network that `spec` describes. Throws as
// Resolve does.
std::vector<TensorSize> LargestTensors(const GraphSpec& spec, std::size_t count);

// Throws ConfigError naming the largest tensor where all of them, for `images` images, would take
// more than any machine has: from there on sizes would not fit into the numbers that count them.
void RefuseHuge(const Network& network, std::int64_t images, const Location& where);

// The formats that torch.autocast gives the layers of a network by its op lists for CUDA or for
// CPUs, as far as a graph can say them.

// By value (0: the input): what its layer gives, `low` being fp16 or bf16.
//   products (conv2d, linear, attention) low: they round what they read, and what they give
//   kinds whose row says autocast_fp32   fp32 (on_cpu: autocast_cpu_fp32, which are fewer: norms
//                                        and softmax give what they get)
//   all others                           fp32 where one of their inputs is, else low
// The images are fp32. torch rounds an fp32 value for each product that reads it: where nothing but
// products reads one, it is rounded once, where it is made, to the same values; where others read
// it too it stays fp32, for products as well. Gradients are as the values, weights low, dw fp32.
std::vector<LayerFormats> AutocastFormats(const Network& network, const NumberFormat& low,
                                          bool on_cpu = false);

}  // namespace ada::graph
