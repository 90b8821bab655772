// See op_maker.h.
#include "graph/op_maker.h"

#include "core/error.h"
#include "core/random.h"

namespace ada::graph {

using backend::Op;

Parameter& OpMaker::Param(int node, int index) const {
  return (*b_.parameters)[b_.first_parameter[node] + index];
}

template <typename Spec>
void OpMaker::FillRounding(const OpPlan& op, Spec& spec) const {
  spec.y_stats = b_.ValueStats(op.node + 1);
  spec.y_style = b_.ValueStyle(op.node + 1);
}

template <typename Spec>
Spec OpMaker::Plain(const OpPlan& op) const {
  Spec spec;
  spec.layer = node(op).config.name;
  spec.x = X(op);
  spec.y = Y(op);
  spec.dy = b_.Grad(op.dy);
  spec.dx = b_.Grad(op.dx);
  return spec;
}

template <typename Spec>
Spec OpMaker::Pool(const OpPlan& op) const {
  Spec spec = Plain<Spec>(op);
  spec.kernel = node(op).config.kernel;
  spec.stride = node(op).config.stride;
  spec.padding = node(op).config.padding;
  return spec;
}

backend::RecomputedNorm OpMaker::Recomputed(int batch_norm, int z) const {
  backend::RecomputedNorm norm = b_.recomputed[batch_norm];
  norm.raw = b_.Value(b_.network->nodes[batch_norm].inputs[0]);
  norm.z = b_.Unstored(z);
  norm.relu = z != batch_norm + 1;
  norm.beta = Param(batch_norm, 1).value.f32();
  norm.y_stats = b_.ValueStats(batch_norm + 1);
  norm.y_style = b_.ValueStyle(batch_norm + 1);
  return norm;
}

void OpMaker::FillProduct(const OpPlan& op, backend::ProductSpec& spec) const {
  const config::LayerConfig& layer = node(op).config;
  LayerStats& stats = b_.stats.backend[op.node + 1];
  spec.w = Param(op.node, 0).value;
  spec.dw = Param(op.node, 0).gradient;
  if (layer.bias) {
    spec.b = Param(op.node, 1).value;
    spec.db = Param(op.node, 1).gradient;
  }
  spec.y_moments = b_.channel_moments[op.node];
  FillRounding(op, spec);
  const TensorStorage& w = b_.encodings->weights[op.node];
  const TensorStorage& dw = b_.encodings->weight_gradients[op.node];
  spec.w_format = w.format;
  spec.w_style = b_.styles->Of(layer.name, "w", w);
  spec.w_stats = b_.training ? &stats.w : nullptr;
  spec.dw_format = dw.format;
  spec.dw_style = b_.styles->Of(layer.name, "dw", dw);
  spec.dw_stats = b_.training ? &stats.dw : nullptr;
  spec.scaler = ScalerOf(op);
  spec.x_own_scale = b_.OwnScale(node(op).inputs[0]);
  if (op.recomputed >= 0) spec.recomputed = Recomputed(op.recomputed, node(op).inputs[0]);
}

std::unique_ptr<Op> OpMaker::MakeConv2d(const OpPlan& op) {
  const config::LayerConfig& layer = node(op).config;
  auto spec = Plain<backend::Conv2dSpec>(op);
  FillProduct(op, spec);
  spec.stride = layer.stride;
  spec.padding = layer.padding;
  spec.dilation = layer.dilation;
  spec.groups = layer.groups;
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeLinear(const OpPlan& op) {
  auto spec = Plain<backend::LinearSpec>(op);
  FillProduct(op, spec);
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeBatchNorm(const OpPlan& op) {
  const config::LayerConfig& layer = node(op).config;
  const int producer = node(op).inputs[0] - 1;
  backend::BatchNormSpec spec;
  spec.layer = layer.name;
  spec.x = X(op);
  spec.out = Y(op);
  spec.gamma = Param(op.node, 0).value;
  spec.dgamma = Param(op.node, 0).gradient;
  spec.beta = Param(op.node, 1).value;
  spec.dbeta = Param(op.node, 1).gradient;
  spec.running_mean = Param(op.node, 2).value;
  spec.running_var = Param(op.node, 3).value;
  if (op.addend >= 0) {
    spec.addend = b_.Value(op.addend);
    spec.sum_stats = b_.ValueStats(op.add + 1);
    spec.sum_style = b_.ValueStyle(op.add + 1);
  }
  spec.relu = op.relu >= 0;
  if (op.consumer >= 0) spec.recomputed = Recomputed(op.node, op.output);
  spec.eps = static_cast<float>(layer.eps);
  spec.momentum = static_cast<float>(layer.momentum);
  if (producer >= 0) spec.x_moments = b_.channel_moments[producer];
  FillRounding(op, spec);
  spec.y_format = b_.encodings->values[op.node + 1].format;
  spec.dy = b_.Grad(op.dy);
  spec.dx = b_.Grad(op.dx);
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeAvgPool(const OpPlan& op) {
  auto spec = Pool<backend::AvgPoolSpec>(op);
  FillRounding(op, spec);
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeAdd(const OpPlan& op) {
  backend::AddSpec spec;
  spec.layer = node(op).config.name;
  for (const int value : node(op).inputs) spec.x.push_back(b_.Value(value));
  spec.y = Y(op);
  FillRounding(op, spec);
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeShortcut(const OpPlan& op) {
  auto spec = Plain<backend::ShortcutSpec>(op);
  spec.stride = node(op).config.stride;
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeDropout(const OpPlan& op) {
  auto spec = Plain<backend::DropoutSpec>(op);
  spec.rate = static_cast<float>(node(op).config.rate);
  spec.stream = StreamId(node(op).config.name);
  FillRounding(op, spec);
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::MakeScale(const OpPlan& op) {
  auto spec = Plain<backend::ScaleSpec>(op);
  FillRounding(op, spec);
  spec.scaler = ScalerOf(op);
  return backend_.Make(spec);
}

std::unique_ptr<Op> OpMaker::Make(const OpPlan& op) {
  switch (node(op).kind) {
    case Kind::kConv2d:
      return MakeConv2d(op);
    case Kind::kLinear:
      return MakeLinear(op);
    case Kind::kBatchNorm:
      return MakeBatchNorm(op);
    case Kind::kRelu:
      return backend_.Make(Plain<backend::ReluSpec>(op));
    case Kind::kMaxPool:
      return backend_.Make(Pool<backend::MaxPoolSpec>(op));
    case Kind::kAvgPool:
    case Kind::kGlobalAvgPool:
      return MakeAvgPool(op);
    case Kind::kAdd:
      return MakeAdd(op);
    case Kind::kFlatten:
      return backend_.Make(Plain<backend::FlattenSpec>(op));
    case Kind::kDropout:
      return MakeDropout(op);
    case Kind::kShortcut:
      return MakeShortcut(op);
    case Kind::kScale:
      return MakeScale(op);
  }
  return nullptr;
}

std::unique_ptr<Op> OpMaker::MakeBranchSum(int index, const GraphSpec& graph) {
  const BranchPlan& branch = b_.plan->branches[index];
  backend::BranchSumSpec spec;
  for (const int gradient : branch.branches) spec.branches.push_back(b_.Grad(gradient));
  spec.sum = b_.Grad(branch.sum);
  spec.layer = b_.NameOf(branch.value - 1);
  spec.decision = b_.decisions.backend + index;
  spec.reference = graph.reference;
  if (graph.rescales_branches) spec.rescale = graph.rescales_branches(spec.layer);
  return backend_.Make(spec);
}

std::unique_ptr<backend::LossOp> OpMaker::MakeLoss(float label_smoothing, bool reference) {
  backend::LossSpec spec;
  spec.logits = b_.Value(static_cast<int>(b_.network->nodes.size()));
  spec.label_smoothing = label_smoothing;
  spec.dlogits = b_.Grad(b_.plan->loss_gradient);
  spec.reference = reference;
  return backend_.MakeLoss(spec);
}

std::unique_ptr<backend::InputOp> OpMaker::MakeInput(const Tensor& images) {
  backend::InputSpec spec;
  spec.x = images;
  spec.y = b_.Value(0);
  spec.y_style = b_.ValueStyle(0);
  if (spec.y_style.own_scale) spec.y_stats = b_.ValueStats(0);
  return backend_.MakeInput(spec);
}

}  // namespace ada::graph
