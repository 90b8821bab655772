// What the graph will execute, before any memory exists: which layers one op computes together, the
// order of ops, and where buffers lie.
#pragma once
#include <cstddef>
#include <set>
#include <vector>

#include "graph/network/shapes.h"
#include "graph/network/tensor_storage.h"
#include "scaling/rules/rules.h"

namespace ada::graph {

// Which layers one op computes together: batch norm, then an addition, then relu. Only the places
// of execution change; roundings, names and logs stay those of the parts.

// A batch norm and what follows it, as nodes; -1: not part of the chain. consumer: the convolution
// or linear layer that computes the chain's output anew each time it reads it
// (backend::RecomputedNorm), so that nobody stores it.
struct Chain {
  int batch_norm = -1, add = -1, relu = -1;
  int consumer = -1;
  int last() const { return relu >= 0 ? relu : add >= 0 ? add : batch_norm; }
};

// What is not to be fused.
struct FusionLimits {
  bool recompute = true;    // false: no chain has a consumer
  std::set<int> unchained;  // batch norms that start no chain with an addition or a relu
  std::set<int> stored;     // batch norms whose chain has no consumer
};

// The chains of at least two layers (the consumer is one) in which each output inside the chain has
// one consumer. An addition takes part with two inputs, and with the first of them where both
// could. A relu takes part only where the gradient of its output belongs to it alone, because the
// op masks it in place: its one consumer must not be an addition (which hands one gradient to all
// its inputs). After an addition the masked gradient is also that of the other input: there no
// layer with a rule may read it, since nobody takes the moments of a masked gradient for it. A
// chain without an addition has a consumer where a product alone reads its output; it then masks
// its dx in place.
std::vector<Chain> FindChains(const Network& network, const FusionLimits& limits);

// Where buffers lie in one block of memory: buffers whose lives overlap never share a byte.

// A buffer and its life: from its first write to its last read, in steps of the graph's execution,
// both included.
struct BufferLife {
  std::size_t bytes = 0;
  int first = 0, last = -1;
};

struct MemoryPlan {
  std::vector<std::size_t> offsets;  // one per buffer, multiples of 64
  std::size_t total = 0;             // bytes of the block
};

// Largest buffers first, each at the lowest place that is free during its whole life (greedy by
// size: Pisarchyk and Lee, "Efficient memory management for deep neural net inference", 2020,
// section 5).
MemoryPlan PlanMemory(const std::vector<BufferLife>& buffers);

// What the graph will execute, before any memory exists: ops in forward order, steps of the
// backward pass, every gradient with the scale it carries, every buffer with its life. Everything
// is a number here; builder.h turns numbers into tensors and ops.

inline constexpr int kLossNode = -1;

// One gradient as one writer leaves it. Two of them share a buffer where a fused op masks its dy in
// place (the same tensor before and after), and where a batch norm or a relu is the last that reads
// its dy and leaves dx there. A consumer leaves its dx masked.
struct GradientPlan {
  enum class Source { kDx, kBranchSum, kMasked };
  Source source = Source::kDx;
  int node = kLossNode;         // dx: of this node (or the loss); sum: of this node's output
  int value = 0;                // whose shape it has
  int input = 0;                // dx: of which input of the node, or output of the network
  const char* tensor = "dx";    // its name in logs
  int first = 0, channels = 0;  // the part of the value's channels that it has; 0: it has all
  int buffer = -1;
  int scale = -1;            // which S it carries
  int scale_group = -1;      // gradients of one group carry equal scales in every step
  TensorStorage stored_as;   // where it does not round: that of the dy it came from
  bool rounds = false;       // its values are rounded and counted
  bool moments = false;      // a consumer wants the moments of its values (never of a masked one)
  bool all_moments = false;  // and more of them than mean_square and the largest magnitude
  // To the op that reads it first (LayerKind::takes_deferred_amax).
  bool amax_deferred = false;
};

// A forward op: one node, or a chain that starts at `node`.
struct OpPlan {
  int node = -1, add = -1, relu = -1;
  int consumer = -1;           // node that makes `output` anew for itself; -1: it is stored
  int recomputed = -1;         // a product's: the batch norm whose consumer it is
  int output = -1;             // value
  int addend = -1;             // value, where add >= 0
  int dy = -1;                 // gradient; -1: none
  std::vector<int> dx = {};    // gradients, one an input; -1, or all empty: not computed
  bool chooses_scale = false;  // dx has a per-tensor scale
  int ds_scale = -1;           // of attention: which S the gradient of its scores carries
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

// Made by MakePlan, read by Builder, OpMaker and the listings. Gradients, buffers and scales are
// indices into its vectors; nodes and values those of the network.
struct Plan {
  std::vector<OpPlan> ops;  // forward order
  std::vector<BackwardStep> backward;
  std::vector<BranchPlan> branches;
  std::vector<GradientPlan> gradients;
  std::vector<int> value_buffers;  // by value; -1: inside a chain, made by its consumer, or tokens
  // By value: the node to which its largest magnitude is left; -1: to none.
  std::vector<int> amax_takers;
  std::vector<BufferLife> buffers;
  std::vector<int> loss_gradients;  // by output of the network
  int scales = 0;                   // how many S
};

// Pointers need to live no longer than the call of MakePlan.
struct PlanSpec {
  std::int64_t images = 1;  // of the largest batch
  const NetworkStorage* storage = nullptr;
  bool training = true;
  bool stochastic = false;  // roundings of gradients
  std::vector<Chain> chains;
  std::vector<scaling::LayerRule> rules;  // by scaler: of nodes, then of decisions within nodes
  std::vector<int> first_decision;        // by node (Bindings)
  bool scales_batch_norms = false;        // as in GraphSpec
};

// Plans the execution. Time in BufferLife: 0 the input, then one step per op, the loss forward, the
// loss backward, and one step per backward step.
Plan MakePlan(const Network& network, const PlanSpec& spec);

}  // namespace ada::graph
