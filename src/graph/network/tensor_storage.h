// How each value and gradient of a network is stored: its format, data type and scale, and the size
// of all of them.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "graph/network/graph_spec.h"
#include "graph/network/precision.h"
#include "graph/network/shapes.h"
#include "number/number_format.h"

namespace ada::graph {

// How a value or gradient of a network is kept: which format it is rounded to, in which storage it
// lies, and whether it has a per-tensor scale. src/README.md, "What is rounded".
struct TensorStorage {
  NumberFormat format = kFp32;
  Storage storage = Storage::kF32;
  bool has_per_tensor_scale = false;  // delayed scaling; storage is then fp32, but format is not
  friend bool operator==(const TensorStorage&, const TensorStorage&) = default;
};

// The roundings within an attention layer.
struct AttentionStorage {
  TensorStorage p, ds;
  bool rounds_p = true, rounds_ds = true;
  // Storage of the gradients of queries, keys and values: the layer's gradient format.
  TensorStorage gradients;
  // Gradients of scores that are not rounded have no alpha.
  bool Decides(std::string_view tensor) const { return tensor != "ds" || rounds_ds; }
};

struct NetworkStorage {
  // By value. A layer that does not round its output keeps its input's.
  std::vector<TensorStorage> values;
  // By value: storage of its gradient where that is rounded: the gradient format of the layer that
  // made the value or, if that rounds nothing, of the layer that made its input, and so on.
  std::vector<TensorStorage> gradients;
  // By value: the same of the gradient that a product which reads it writes. Under autocast that
  // may be narrower than `gradients`, in which such gradients are then summed.
  std::vector<TensorStorage> product_gradients;
  // By value: storage of its gradient when it arrives as dy at the layer that made it; differs from
  // `gradients` if the only consumer is a product or passes a gradient on unrounded (relu, an
  // addition).
  std::vector<TensorStorage> arriving;
  // By node: of the weights as they are multiplied, and of dw (which is stored in fp32).
  std::vector<TensorStorage> weights, weight_gradients;
  std::map<int, AttentionStorage> attention;  // by node
  std::vector<LayerOperands> operands;        // by node: of those with a weight
  // By node: of those with a weight and of attention, which counts neither as first nor as last.
  std::vector<scaling::Accumulators> accumulators;

  // Storage of the gradient by `value` that `reader` rounds.
  const TensorStorage& GradientFrom(const Node& reader, int value) const {
    const auto at = static_cast<std::size_t>(value);
    return reader.kind->autocasts_low() ? product_gradients[at] : gradients[at];
  }
};

NetworkStorage ResolveStorage(const Network& network, const Precision& precision);

// How large a tensor of a network is, before any of them exists: for the message of a run that has
// no memory left (run/memory_need.cpp) and for RefuseHuge.
struct TensorSize {
  std::string name;  // "conv1.weight", "conv1.y"
  double bytes = 0;
};

// The `count` largest parameters and outputs of the network that `spec` describes. Throws as
// Resolve does.
std::vector<TensorSize> LargestTensors(const GraphSpec& spec, std::size_t count);

// Throws ConfigError, naming the largest tensor, if all of them, for `images` images, need more
// memory than any machine has: beyond that, sizes might overflow.
void RefuseHuge(const Network& network, std::int64_t images, const Location& where);
// Throws ConfigError, naming the layer, if an output for `images` images has more values than a
// backend can number.
void RefuseOutputsBeyond(std::int64_t most_values, const Network& network, std::int64_t images);

// Throws ConfigError, naming layer and format, where a format is rounded by a table and the backend
// has none (`has_tables`), and where an accumulator would take such values without exponents.
void RefuseTables(const Network& network, const NetworkStorage& storage, bool has_tables);
// The latter alone, for what a product with an accumulator takes.
void RefuseSumsWithoutExponents(const NumberFormat& format, const std::string& layer);

// The formats that torch.autocast gives the layers of a network by its op lists for CUDA or for
// CPUs, as far as a graph can express them.
// By value (0: the input): the format of its layer's output; `low` is fp16 or bf16.
//   matmuls (conv2d, linear, attention)  low: they round their inputs and their output
//   kinds whose row has autocast_fp32    fp32 (on_cpu: autocast_cpu_fp32, which are fewer: norms
//                                        and softmax keep their input's)
//   all others                           fp32 if one of their inputs is, otherwise low
// The images are fp32. torch rounds an fp32 value for each matmul that reads it: if only matmuls
// read it, it is rounded once, where it is made, to the same values; if other layers read it too,
// it stays fp32, for matmuls as well. Weights are low, dw is fp32. A gradient is like torch's
// value: that of an fp32 value is fp32, whoever writes or sums it, but for what a matmul writes,
// which is like the value here.
std::vector<LayerFormats> AutocastFormats(const Network& network, const NumberFormat& low,
                                          bool on_cpu = false);

}  // namespace ada::graph
