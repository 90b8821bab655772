// Collects the parts of an op from the bindings, of which the row of the layer's kind makes the
// spec.
#include <algorithm>

#include "error.h"
#include "graph/builder.h"

namespace ada::graph {

using backend::Op;

Tensor OpMaker::Input(const OpPlan& op, int index) const {
  const int value = node(op).inputs[index];
  return op.recomputed >= 0 ? b_.Unstored(value) : b_.Value(value);
}

layers::RoundedTo OpMaker::RoundedValue(int value) const {
  return {b_.storage->values[value].format, b_.ValueStyle(value), b_.ValueStats(value)};
}

layers::RoundedTo OpMaker::RoundedOf(int node, const char* tensor, const TensorStorage& storage,
                                     TensorStats LayerStats::*stats) const {
  return {storage.format, b_.styles->Of(b_.NameOf(node), tensor, storage),
          b_.training ? &(b_.stats.backend[node + 1].*stats) : nullptr};
}

void OpMaker::AddAttention(const OpPlan& op, layers::OpArguments& parts) const {
  const AttentionStorage& within = b_.storage->attention.at(op.node);
  parts.rounds_p = within.rounds_p, parts.rounds_ds = within.rounds_ds;
  if (within.rounds_p) parts.p = RoundedOf(op.node, "p", within.p, &LayerStats::p);
  AddCarriedScales(op, parts);
  AddSums(op, parts);
  for (std::size_t i = 0; b_.training && i < b_.judged_formats.size(); ++i)
    parts.judged_operands.push_back(
        {b_.judged_formats[i], b_.judged_operands.at(op.node).backend + i * kAttentionOperands});
  for (std::size_t i = 0; i < kAttentionOperands; ++i) {
    backend::OperandRounding& operand = parts.attention_operands[i];
    operand = b_.styles->OperandOf(b_.NameOf(op.node), static_cast<AttentionOperand>(i),
                                   b_.storage->operands[op.node]);
    if (!b_.training || !operand.rounds) continue;
    AttentionOperandStats* stats = b_.attention_operands.at(op.node).backend + i;
    operand.stats = &stats->stats, operand.block_counts = &stats->blocks;
  }
  if (!op.has_backward) return;
  if (within.rounds_ds) parts.ds = RoundedOf(op.node, "ds", within.ds, &LayerStats::ds);
  parts.ds_scale = b_.scales.backend + op.ds_scale;
  for (std::size_t i = 0; i < parts.scalers.size(); ++i)
    parts.scalers[i] = b_.scalers.backend + b_.first_decision[op.node] + i;
}

// `z` is the batch norm's own output (batch_norm + 1) or that of the relu after it.
backend::RecomputedNorm OpMaker::Recomputed(int batch_norm, int z) const {
  backend::RecomputedNorm norm = b_.recomputed[batch_norm];
  norm.raw = b_.Value(b_.network->nodes[batch_norm].inputs[0]);
  norm.z = b_.Unstored(z);
  norm.relu = z != batch_norm + 1;
  norm.beta = b_.ParameterOf(batch_norm, 1).value.f32();
  norm.y_stats = b_.ValueStats(batch_norm + 1);
  norm.y_style = b_.ValueStyle(batch_norm + 1);
  return norm;
}

// A tied weight shares its owner's copy; dw is complete, and then rounded and counted, when the
// owner, whose backward pass runs last, has added its part.
void OpMaker::AddWeight(const OpPlan& op, layers::OpArguments& parts) const {
  const int owner = node(op).weight_owner(op.node);
  parts.w = RoundedOf(owner, "w", b_.storage->weights[owner], &LayerStats::w);
  if (owner == op.node)
    parts.dw = RoundedOf(owner, "dw", b_.storage->weight_gradients[owner], &LayerStats::dw);
  // The op of a later layer with the same weight runs earlier in the backward pass: it writes dw,
  // and this one adds to it.
  for (int i = op.node + 1; i < static_cast<int>(b_.network->nodes.size()); ++i)
    parts.adds_dw = parts.adds_dw || b_.network->nodes[i].weight_owner(i) == owner;
  if (node(op).kind->reads_tokens) return;
  AddCarriedScales(op, parts);
  for (std::size_t i = 0; i < kOperands; ++i) {
    parts.operands[i] = b_.styles->OperandOf(b_.NameOf(op.node), static_cast<Operand>(i),
                                             b_.storage->operands[op.node]);
    if (!b_.training) continue;
    parts.operands[i].stats = &b_.stats.backend[op.node + 1].operands[i];
    parts.operands[i].block_counts = &b_.stats.backend[op.node + 1].blocks[i];
  }
  if (op.recomputed >= 0) parts.recomputed = Recomputed(op.recomputed, node(op).inputs[0]);
  AddSums(op, parts);
}

void OpMaker::AddCarriedScales(const OpPlan& op, layers::OpArguments& parts) const {
  const std::vector<int>& inputs = node(op).inputs;
  for (std::size_t i = 0; i < std::min(inputs.size(), parts.x_per_tensor_scales.size()); ++i)
    parts.x_per_tensor_scales[i] = b_.PerTensorScale(inputs[i]);
  if (op.dy >= 0) parts.dy.style.per_tensor_scale = b_.GradientScale(op.dy);
}

void OpMaker::AddSums(const OpPlan& op, layers::OpArguments& parts) const {
  for (std::size_t i = 0; i < scaling::kLayerMatmuls; ++i) {
    parts.sums[i].rule = b_.storage->accumulators[op.node][i];
    if (b_.training && parts.sums[i].rule)
      parts.sums[i].counts = &b_.stats.backend[op.node + 1].sums[i];
    if (!node(op).kind->has_weight && node(op).kind->decisions.empty()) continue;
    for (std::size_t rule = 0; rule < b_.judged_rules.size(); ++rule)
      parts.sums[i].judged.push_back(
          {b_.judged_rules[rule], b_.judged.backend + b_.JudgedAt(rule, op.node, i)});
  }
}

void OpMaker::AddChain(const OpPlan& op, layers::OpArguments& parts) const {
  if (op.addend >= 0) {
    parts.addend = b_.Value(op.addend);
    parts.sum = RoundedValue(op.add + 1);
  }
  parts.relu = op.relu >= 0;
  if (op.consumer >= 0) parts.recomputed = Recomputed(op.node, op.output);
}

layers::OpArguments OpMaker::PartsOf(const OpPlan& op) const {
  const Node& n = node(op);
  layers::OpArguments parts;
  parts.layer = n.config.name;
  parts.keys = n.config;
  for (std::size_t i = 0; i < n.inputs.size(); ++i)
    parts.x.push_back(Input(op, static_cast<int>(i)));
  parts.y = op.consumer >= 0 ? b_.Unstored(op.output) : b_.Value(op.output);
  parts.dy = b_.Grad(op.dy);
  for (const int dx : op.dx) parts.dx.push_back(b_.Grad(dx));
  for (std::size_t i = 0; i < b_.parameters_of[op.node].size(); ++i) {
    const Parameter& parameter = b_.ParameterOf(op.node, i);
    parts.parameters.push_back({parameter.value, parameter.gradient});
  }
  if (n.rounds_output()) parts.rounded_y = RoundedValue(op.node + 1);
  // Null for a layer whose dx carries S on unchanged: its op applies no rule.
  if (op.chooses_scale) parts.scaler = b_.scalers.backend + op.node;
  parts.y_moments = b_.channel_moments[op.node];
  // The op that reads y first records its largest magnitude; measured_x tells that op to do so.
  parts.y_amax_deferred = b_.plan->amax_deferred_to[op.output] >= 0;
  if (n.inputs[0] > 0) parts.x_moments = b_.channel_moments[n.inputs[0] - 1];
  if (b_.plan->amax_deferred_to[n.inputs[0]] == op.node)
    parts.measured_x = RoundedValue(n.inputs[0]);
  // A pool writes positions, and the unpooling that names the pool reads the same memory; null for
  // all other layers.
  parts.positions = b_.positions[n.pool < 0 ? op.node : n.pool];
  if (n.pool >= 0) parts.pooled = b_.network->nodes[n.pool].output;
  if (n.kind->has_weight || n.kind->gathers_weight) AddWeight(op, parts);
  if (!n.kind->decisions.empty()) AddAttention(op, parts);
  AddChain(op, parts);
  return parts;
}

std::unique_ptr<Op> OpMaker::Make(const OpPlan& op) {
  return backend_.Make(node(op).kind->spec(PartsOf(op)));
}

// `first` stays empty if every branch has all channels, which is usual.
std::unique_ptr<Op> OpMaker::MakeBranchSum(int index, const GraphSpec& graph) {
  const BranchPlan& branch = b_.plan->branches[index];
  backend::BranchSumSpec spec;
  bool of_parts = false;
  for (const int gradient : branch.branches) {
    spec.branches.push_back(b_.Grad(gradient));
    spec.first.push_back(b_.plan->gradients[gradient].first);
    of_parts = of_parts || b_.plan->gradients[gradient].channels > 0;
  }
  if (!of_parts) spec.first.clear();
  spec.sum = b_.Grad(branch.sum);
  spec.layer = b_.NameOf(branch.value - 1);
  spec.decision = b_.decisions.backend + index;
  spec.reference = graph.reference;
  if (graph.rescales_branches) spec.rescale = graph.rescales_branches(spec.layer);
  return backend_.Make(spec);
}

std::unique_ptr<backend::LossOp> OpMaker::MakeLoss(const GraphSpec& graph) {
  const auto output = [&](std::size_t index) { return b_.Value(b_.network->outputs[index]); };
  // Empty in an evaluation graph, whose plan has no gradients: the loss op then computes only the
  // value of the loss.
  const auto gradient = [&](std::size_t index) {
    const std::vector<int>& gradients = b_.plan->loss_gradients;
    return b_.Grad(index < gradients.size() ? gradients[index] : -1);
  };
  switch (graph.task) {
    case Task::kClassification: {
      backend::ClassLossSpec spec;
      spec.logits = output(0), spec.dlogits = gradient(0);
      spec.label_smoothing = graph.label_smoothing, spec.mixes = graph.mixes;
      spec.reference = graph.reference;
      return backend_.MakeLoss(spec);
    }
    case Task::kLanguage:  // a token is a pixel of an image one pixel wide
    case Task::kSegmentation: {
      backend::PixelLossSpec spec;
      spec.logits = output(0), spec.dlogits = gradient(0);
      spec.class_weights = graph.class_weights;
      spec.reference = graph.reference;
      return backend_.MakeLoss(spec);
    }
    case Task::kDetection: {
      backend::MultiboxLossSpec spec;
      spec.locations = output(0), spec.dlocations = gradient(0);
      spec.scores = output(1), spec.dscores = gradient(1);
      spec.negatives = graph.negatives;
      spec.reads_background = graph.reads_background;
      spec.reference = graph.reference;
      return backend_.MakeLoss(spec);
    }
  }
  throw InternalError("a task without a loss");
}

std::unique_ptr<backend::InputOp> OpMaker::MakeInput(const Tensor& images) {
  backend::InputSpec spec;
  spec.x = images;
  spec.y = b_.Value(0);
  spec.y_style = b_.ValueStyle(0);
  spec.y_stats = b_.ValueStats(0);
  return backend_.MakeInput(spec);
}

}  // namespace ada::graph
