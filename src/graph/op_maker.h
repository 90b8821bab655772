// From a planned op to a backend's op: fills specs with tensors, gradients, statistics and
// parameters. Decides nothing about order or memory.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "graph/plan.h"

namespace ada::graph {

// What the numbers of a plan stand for. Vectors are those of the graph and must not move.
struct Bindings {
  const Network* network = nullptr;
  const Plan* plan = nullptr;
  std::int64_t images = 1;
  NumberFormat format;
  bool training = true;
  std::byte* block = nullptr;        // activations and gradients
  std::vector<std::size_t> offsets;  // by buffer
  float* scales = nullptr;           // by scale
  std::vector<Parameter>* parameters = nullptr;
  std::vector<int> first_parameter;                          // by node
  std::vector<backend::ChannelMoments> channel_moments;      // by node: of a convolution's y
  std::vector<LayerStats>* stats = nullptr;                  // 0: the loss, i + 1: node i
  std::vector<scaling::LayerScaler>* scalers = nullptr;      // by node
  std::vector<scaling::ScaleDecision>* decisions = nullptr;  // by branch
  std::vector<TensorMoments>* moments = nullptr;             // by gradient

  Tensor Value(int value) const;
  backend::Gradient Grad(int gradient) const;  // empty for -1
  const float* ScaleOf(int gradient) const { return scales + plan->gradients[gradient].scale; }
  Tensor View(int value, int buffer) const;
};

class OpMaker {
 public:
  OpMaker(const Bindings& bindings, backend::Backend& backend) : b_(bindings), backend_(backend) {}

  // Null: the backend declines this chain.
  std::unique_ptr<backend::Op> Make(const OpPlan& op);
  std::unique_ptr<backend::Op> MakeBranchSum(int branch);
  std::unique_ptr<backend::LossOp> MakeLoss(float label_smoothing);

 private:
  const Node& node(const OpPlan& op) const { return b_.network->nodes[op.node]; }
  Tensor X(const OpPlan& op) const { return b_.Value(node(op).inputs[0]); }
  Tensor Y(const OpPlan& op) const { return b_.Value(op.output); }
  TensorStats* YStats(int node) const;
  Parameter& Param(int node, int index) const;
  void FillProduct(const OpPlan& op, backend::ProductSpec& spec) const;

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

  const Bindings& b_;
  backend::Backend& backend_;
};

}  // namespace ada::graph
