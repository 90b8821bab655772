// From a planned op to a backend's op.
#pragma once
#include <memory>

#include "graph/bindings.h"

namespace ada::graph {

// Collects tensors, gradients, statistics and parameters, from which the layer's kind makes the
// spec. Decides nothing about order or memory. The builder makes one for each plan that it tries.
// It only looks things up in `bindings`, which must outlive it; the ops it makes keep backend
// addresses only.
class OpMaker {
 public:
  OpMaker(const Bindings& bindings, backend::Backend& backend) : b_(bindings), backend_(backend) {}

  // Returns null if the backend declines this chain of layers, or this op as a chain's consumer.
  std::unique_ptr<backend::Op> Make(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeBranchSum(int branch, const GraphSpec& graph);
  // The loss of the task.
  std::unique_ptr<backend::LossOp> MakeLoss(const GraphSpec& graph);
  std::unique_ptr<backend::InputOp> MakeInput(const Tensor& images);

 private:
  const Node& node(const OpPlan& op) const { return b_.network->nodes[op.node]; }
  // Collects the parts; the functions Add... fill in those that only some kinds have.
  layers::OpParts PartsOf(const OpPlan& op) const;
  void AddWeight(const OpPlan& op, layers::OpParts& parts) const;
  void AddSums(const OpPlan& op, layers::OpParts& parts) const;
  void AddChain(const OpPlan& op, layers::OpParts& parts) const;
  // Has no data where the op recomputes this input (OpPlan::recomputed).
  Tensor Input(const OpPlan& op, int index) const;
  layers::RoundedTo RoundedValue(int value) const;
  void AddAttention(const OpPlan& op, layers::OpParts& parts) const;
  layers::RoundedTo RoundedOf(int node, const char* tensor, const TensorStorage& storage,
                              TensorStats LayerStats::*stats) const;
  // The recomputed norm of a batch norm whose chain ends in value `z`; the batch norm's op and the
  // consumer's op share it.
  backend::RecomputedNorm Recomputed(int batch_norm, int z) const;

  const Bindings& b_;
  backend::Backend& backend_;
};

}  // namespace ada::graph
