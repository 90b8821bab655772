// From a planned op to a backend's op: gathers tensors, gradients, statistics and parameters, of
// which the layer's kind makes the spec. Decides nothing about order or memory.
#pragma once
#include <memory>

#include "graph/bindings.h"

namespace ada::graph {

// The builder makes one for each plan that it tries. It only looks things up in `bindings`, which
// must outlive it; ops keep backend addresses alone.
class OpMaker {
 public:
  OpMaker(const Bindings& bindings, backend::Backend& backend) : b_(bindings), backend_(backend) {}

  // Null: the backend declines this chain, or to be the consumer of one.
  std::unique_ptr<backend::Op> Make(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeBranchSum(int branch, const GraphSpec& graph);
  // The loss of the task.
  std::unique_ptr<backend::LossOp> MakeLoss(const GraphSpec& graph);
  std::unique_ptr<backend::InputOp> MakeInput(const Tensor& images);

 private:
  const Node& node(const OpPlan& op) const { return b_.network->nodes[op.node]; }
  // Gathers the parts; the Add... functions fill those that only some kinds have.
  OpParts PartsOf(const OpPlan& op) const;
  void AddWeight(const OpPlan& op, OpParts& parts) const;
  void AddChain(const OpPlan& op, OpParts& parts) const;
  // Without data where the op computes this input anew (OpPlan::recomputed).
  Tensor Input(const OpPlan& op, int index) const;
  RoundedTo RoundedValue(int value) const;
  void AddAttention(const OpPlan& op, OpParts& parts) const;
  RoundedTo RoundedOf(int node, const char* tensor, const TensorStorage& storage,
                      TensorStats LayerStats::*stats) const;
  // The recomputed norm of a batch norm whose chain ends in value `z`, for both its op and the
  // consumer's.
  backend::RecomputedNorm Recomputed(int batch_norm, int z) const;

  const Bindings& b_;
  backend::Backend& backend_;
};

}  // namespace ada::graph
