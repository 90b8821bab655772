// Maps the numbers used in a plan to tensors, gradients, statistics and parameters.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "graph/network/tensor_storage.h"
#include "graph/plan/plan.h"
#include "graph/rounding_styles.h"

namespace ada::graph {

// The graph owns what is pointed to. Where memory is shared with the host, specs get the backend's
// address and the lists get the host's.
struct Bindings {
  const Network* network = nullptr;
  const Plan* plan = nullptr;
  const NetworkStorage* storage = nullptr;
  RoundingStyles* styles = nullptr;
  std::int64_t images = 1;
  bool training = true;
  std::byte* block = nullptr;        // activations and gradients
  std::vector<std::size_t> offsets;  // by buffer
  SharedArray<float> scales;         // by scale
  std::vector<Parameter>* parameters = nullptr;
  std::vector<std::vector<int>> parameters_of;           // by node (NetworkParameters::of)
  Tensor tokens;                                         // the network's input if it is tokens
  std::vector<backend::ChannelMoments> channel_moments;  // by node: of a convolution's y
  std::vector<backend::RecomputedNorm>
      recomputed;                         // by node: memory that batch norm and consumer share
  std::vector<std::uint16_t*> positions;  // by node: of a pool, where an unpooling reads them
  SharedArray<LayerStats> stats;          // 0: input and loss, i + 1: node i
  // By node of attention whose operands are rounded once more: by AttentionOperand.
  std::map<int, SharedArray<AttentionOperandStats>> attention_operands;
  // Counts of rules that are judged lie by rule, node and product.
  std::vector<scaling::Accumulator> judged_rules;
  SharedArray<scaling::AccumulatorCounts> judged;
  std::size_t JudgedAt(std::size_t rule, int node, std::size_t product) const {
    return (rule * network->nodes.size() + static_cast<std::size_t>(node)) * scaling::kProducts +
           product;
  }
  SharedArray<scaling::LayerScaler> scalers;      // by node, then by decision within nodes
  std::vector<int> first_decision;                // by node: index of its first decision, or -1
  SharedArray<scaling::ScaleDecision> decisions;  // by branch
  SharedArray<TensorMoments> moments;             // by gradient

  // The tensors of a value and of a gradient of the plan, in the form that specs need: in backend
  // memory, with the shape of the largest batch.
  Tensor Value(int value) const;
  Tensor Unstored(int value) const;            // without data
  backend::Gradient Grad(int gradient) const;  // empty for -1
  // At the host's address.
  const float* ScaleOf(int gradient) const { return scales.host + plan->gradients[gradient].scale; }
  // The rounding style of a value, for the layer that makes it (0: the network's input).
  backend::RoundingStyle ValueStyle(int value) const;
  // The per-tensor scale that a value carries from the layer that rounded it; null: none.
  const scaling::TensorScaler* PerTensorScale(int value) const;
  // The same of a gradient.
  const scaling::TensorScaler* GradientScale(int index) const;
  TensorStats* ValueStats(int value) const;  // null in a graph for evaluation only
  // `index` is the parameter's index in the row of the layer's kind: 0 is the weight, which is
  // another node's where it is tied.
  const Parameter& ParameterOf(int node, std::size_t index) const {
    return (*parameters)[static_cast<std::size_t>(parameters_of[node][index])];
  }
  const std::string& NameOf(int node) const { return network->nodes[node].config.name; }

 private:
  Tensor Describe(int value, const TensorStorage& stored_as) const;  // without data
  Tensor View(int value, int buffer, const TensorStorage& stored_as) const;
};

}  // namespace ada::graph
