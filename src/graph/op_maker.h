// From a planned op to a backend's op: fills specs with tensors, gradients, statistics and
// parameters. Decides nothing about order or memory.
#pragma once
#include <memory>

#include "graph/bindings.h"

namespace ada::graph {

class OpMaker {
 public:
  OpMaker(const Bindings& bindings, backend::Backend& backend) : b_(bindings), backend_(backend) {}

  // Null: the backend declines this chain, or to be the consumer of one.
  std::unique_ptr<backend::Op> Make(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeBranchSum(int branch, const GraphSpec& graph);
  // `reference`: as in the authors' program.
  std::unique_ptr<backend::LossOp> MakeLoss(float label_smoothing, bool reference);
  std::unique_ptr<backend::InputOp> MakeInput(const Tensor& images);

 private:
  const Node& node(const OpPlan& op) const { return b_.network->nodes[op.node]; }
  Tensor X(const OpPlan& op) const {
    const int x = node(op).inputs[0];
    return op.recomputed >= 0 ? b_.Unstored(x) : b_.Value(x);
  }
  Tensor Y(const OpPlan& op) const {
    return op.consumer >= 0 ? b_.Unstored(op.output) : b_.Value(op.output);
  }
  // Of a batch norm whose chain ends in value `z`, for both its op and the consumer's.
  backend::RecomputedNorm Recomputed(int batch_norm, int z) const;
  scaling::LayerScaler* ScalerOf(const OpPlan& op) const {
    return op.dx >= 0 ? b_.scalers.backend + op.node : nullptr;
  }
  Parameter& Param(int node, int index) const;
  void FillProduct(const OpPlan& op, backend::ProductSpec& spec) const;

  template <typename Spec>
  void FillRounding(const OpPlan& op, Spec& spec) const;  // of y
  template <typename Spec>
  Spec Plain(const OpPlan& op) const;  // x, y, dy, dx
  template <typename Spec>
  Spec Pool(const OpPlan& op) const;

  std::unique_ptr<backend::Op> MakeConv2d(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeLinear(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeBatchNorm(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeAvgPool(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeAdd(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeShortcut(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeDropout(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeScale(const OpPlan& op);

  const Bindings& b_;
  backend::Backend& backend_;
};

}  // namespace ada::graph
