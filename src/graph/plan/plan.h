// What the graph will execute, planned before any memory exists: which layers one op computes
// together, the order of ops, and the places of buffers.
#pragma once
#include <cstddef>
#include <set>
#include <vector>

#include "graph/network/shapes.h"
#include "graph/network/tensor_storage.h"
#include "scaling/rules/rules.h"

namespace ada::graph {

// Which layers one op computes together: a batch norm, then an addition, then a relu; -1: not part
// of the chain. Only the place of execution changes; roundings, names and logs stay those of the
// separate layers. consumer: the convolution or linear layer that recomputes the chain's output
// each time it reads it (backend::RecomputedNorm), so that it is never stored.
struct Chain {
  int batch_norm = -1, add = -1, relu = -1;
  int consumer = -1;
  int last() const { return relu >= 0 ? relu : add >= 0 ? add : batch_norm; }
};

// What must not be fused.
struct FusionLimits {
  bool recompute = true;    // false: no chain has a consumer
  std::set<int> unchained;  // batch norms that start no chain with an addition or a relu
  std::set<int> stored;     // batch norms whose chain has no consumer
};

// The chains of at least two layers (counting the consumer) in which each output inside the chain
// has one consumer. An addition takes part if it has two inputs, in the chain of the first one if
// both could. A relu takes part only if no other layer reads the gradient of its output, because
// the op masks it in place: its only consumer must not be an addition (which passes one gradient to
// all its inputs). After an addition the masked gradient is also that of the other input, where no
// layer with a rule may read it, because nobody computes the moments of a masked gradient. A chain
// without an addition has a consumer if a matmul is the only reader of its output; the consumer
// then masks its dx in place.
std::vector<Chain> FindChains(const Network& network, const FusionLimits& limits);

// A buffer and its life: from its first write to its last read, in steps of the graph's execution,
// both inclusive.
struct BufferLife {
  std::size_t bytes = 0;
  int first = 0, last = -1;
};

// Places of buffers in one block of memory: those whose lives overlap never share a byte.
struct MemoryPlan {
  std::vector<std::size_t> offsets;  // one per buffer, multiples of 64
  std::size_t total = 0;             // bytes of the block
};

// Places the largest buffers first, each at the lowest offset that is free during its whole life
// (greedy by size: Pisarchyk and Lee, "Efficient memory management for deep neural net inference",
// 2020, section 5).
MemoryPlan PlanMemory(const std::vector<BufferLife>& buffers);

inline constexpr int kLossNode = -1;

// One gradient, as written by one op. Two of them share a buffer where a fused op masks its dy in
// place (the tensor before and after), and where a batch norm or a relu is the last to read its dy
// and overwrites it with dx. A consumer masks the dx that it writes.
struct GradientPlan {
  enum class Source { kDx, kBranchSum, kMasked };
  Source source = Source::kDx;
  int node = kLossNode;         // dx: of this node (or the loss); sum: of this node's output
  int value = 0;                // it has this value's shape
  int input = 0;                // dx: of which input of the node, or output of the network
  const char* tensor = "dx";    // its name in logs
  int first = 0, channels = 0;  // the part of the value's channels that it has; 0: it has all
  int buffer = -1;
  int scale = -1;            // index of the S that it carries
  int scale_group = -1;      // gradients of one group carry equal scales in every step
  TensorStorage stored_as;   // if not rounded: that of the dy it came from
  int came_from = -1;        // that dy; -1: it has none
  bool rounds = false;       // its values are rounded and counted
  bool moments = false;      // a consumer needs the moments of its values (never of a masked one)
  bool all_moments = false;  // and more of them than mean_square and the largest magnitude
  // What reads it first, an op (LayerKind::takes_amax_of_dy) or a sum, computes its largest
  // magnitude.
  bool amax_deferred = false;
};

// A forward op: one node, or a chain that starts at `node`.
struct OpPlan {
  int node = -1, add = -1, relu = -1;
  int consumer = -1;           // node that recomputes `output` for itself; -1: it is stored
  int recomputed = -1;         // for a matmul: the batch norm whose consumer it is
  int output = -1;             // value
  int addend = -1;             // value, where add >= 0
  int dy = -1;                 // gradient; -1: none
  std::vector<int> dx = {};    // gradients, one per input; -1, or all empty: not computed
  bool chooses_scale = false;  // a rule chooses an alpha for dx
  int ds_scale = -1;           // attention: index of the S that the gradient of the scores carries
  bool has_backward = false;   // false: nothing before it is trained, or it is an alias (add)
  int last() const { return relu >= 0 ? relu : add >= 0 ? add : node; }
};

struct BranchPlan {
  int value = -1;
  std::vector<int> branches;  // gradients, in the order of the consumers
  int sum = -1;
};

// A step of the backward pass: an op of Plan::ops or a sum of Plan::branches.
struct BackwardStep {
  int op = -1, branch = -1;
};

// Ops in forward order, steps of the backward pass, every gradient with the scale it carries, every
// buffer with its life. All of these are numbers: builder.h turns them into tensors and ops.
// Gradients, buffers and scales are indices into the plan's vectors; nodes and values are those of
// the network. Made by MakePlan; read by Builder, OpMaker and the listings.
struct Plan {
  std::vector<OpPlan> ops;  // forward order
  std::vector<BackwardStep> backward;
  std::vector<BranchPlan> branches;
  std::vector<GradientPlan> gradients;
  std::vector<int> value_buffers;  // by value; -1: inside a chain, made by its consumer, or tokens
  // By value: the node that computes its largest magnitude for the layer that made it, or -1.
  std::vector<int> amax_deferred_to;
  std::vector<BufferLife> buffers;
  std::vector<int> loss_gradients;  // by output of the network
  int scales = 0;                   // number of different S
};

// Pointers must be valid only during the call of MakePlan.
struct PlanSpec {
  std::int64_t images = 1;  // of the largest batch
  const NetworkStorage* storage = nullptr;
  bool training = true;
  bool stochastic = false;  // roundings of gradients are stochastic
  std::vector<Chain> chains;
  std::vector<scaling::LayerRule> rules;  // by scaler: of nodes, then of decisions within nodes
  std::vector<int> first_decision;        // by node (Bindings)
  bool scales_batch_norms = false;        // as in GraphSpec
};

// Plans the execution. Time in BufferLife: 0 the input, then one step per op, the loss forward, the
// loss backward, and one step per backward step.
Plan MakePlan(const Network& network, const PlanSpec& spec);

}  // namespace ada::graph
