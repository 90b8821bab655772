// Rows are listed node by node, whichever ops compute the nodes.
#include <algorithm>
#include <initializer_list>

#include "error.h"
#include "graph/builder.h"
#include "io/tensor_names.h"

namespace ada::graph {
namespace {

// Goes through nodes, not ops: rows of logs are named and ordered by layers, so that fusion does
// not change them. Pointers to counts are those into which the plan's ops write.
class PointLister {
 public:
  explicit PointLister(const Bindings& bindings)
      : b_(bindings),
        nodes_(static_cast<int>(bindings.network->nodes.size())),
        op_of_(nodes_, nullptr),
        branch_of_(nodes_, -1) {
    const Plan& plan = *b_.plan;
    for (const OpPlan& op : plan.ops) op_of_[op.node] = &op;
    for (std::size_t i = 0; i < plan.branches.size(); ++i) {
      branch_of_[plan.branches[i].value - 1] = static_cast<int>(i);
    }
  }

  // Forward in layer order, then backward from the last layer to the first.
  std::vector<RoundingPoint> Roundings() {
    if (!b_.network->reads_tokens()) AddInput();
    for (int i = 0; i < nodes_; ++i) AddForward(i);
    if (b_.training) AddBackward();
    return std::move(points_);
  }

  // The decisions in the order of the backward pass: the sum of branches at a node's output comes
  // before the node's own decision.
  std::vector<ScalePoint> Scales() {
    std::vector<ScalePoint> scales;
    for (int i = nodes_ - 1; i >= 0; --i) {
      if (branch_of_[i] >= 0) {
        scales.push_back({b_.NameOf(i), b_.decisions.host + branch_of_[i], nullptr});
      }
      if (!op_of_[i] || !op_of_[i]->has_backward) continue;
      AddDecisions(i, scales);
      if (!op_of_[i]->chooses_scale) continue;
      scaling::LayerScaler& scaler = b_.scalers.host[i];
      scales.push_back({b_.NameOf(i), &scaler.decision, &scaler});
    }
    return scales;
  }

 private:
  const Node& node(int index) const { return b_.network->nodes[index]; }

  // Adds the decisions of gradients within a node.
  void AddDecisions(int node, std::vector<ScalePoint>& scales) const {
    std::size_t at = static_cast<std::size_t>(b_.first_decision[node]);
    for (const layers::OwnDecision& decision : this->node(node).kind->decisions) {
      scaling::LayerScaler& scaler = b_.scalers.host[at++];
      if (!b_.storage->attention.at(node).Decides(decision.name)) continue;
      scales.push_back({b_.NameOf(node) + "." + decision.name, &scaler.decision, &scaler});
    }
  }

  // node: kLossNode for the logit gradient. The scale is null for tensors that carry no S: values,
  // weights, and dw, which is unscaled.
  void Add(int node, const char* tensor, const NumberFormat& format, TensorStats LayerStats::*stats,
           const float* scale = nullptr) {
    const std::string layer = node == kLossNode ? "loss" : b_.NameOf(node);
    const TensorScale* own = b_.styles->ScaleOf(layer, tensor);
    points_.push_back({layer, tensor, format, &(b_.stats.host[node + 1].*stats),
                       &(b_.stats.backend[node + 1].*stats), scale,
                       own ? own->per_tensor_scale.host : nullptr,
                       b_.styles->BinsOf(layer, tensor)});
  }
  void AddGradient(int node, const char* tensor, TensorStats LayerStats::*stats, int gradient) {
    const NumberFormat& format = b_.plan->gradients[gradient].stored_as.format;
    Add(node, tensor, format, stats, b_.ScaleOf(gradient));
  }

  // Adds an operand that is rounded, named `tensor`, but for where it is counted. of: the operand
  // that its delayed scale belongs to.
  RoundingPoint& AddRounded(int i, const std::string& tensor, const std::string& of,
                            const OperandRule& rule, const float* scale) {
    const std::string& layer = b_.NameOf(i);
    const TensorScale* own = b_.styles->ScaleOf(layer, of);
    RoundingPoint& point = points_.emplace_back(
        RoundingPoint{layer, tensor, rule.format, nullptr, nullptr, scale,
                      own ? own->per_tensor_scale.host : b_.styles->CurrentScaleOf(layer, tensor),
                      b_.styles->BinsOf(layer, tensor)});
    using Kind = config::TensorScalingConfig::Kind;
    point.row_scaled = !rule.block && rule.format != kFp32 && rule.scaling.kind == Kind::kRow;
    point.block = rule.block;
    if (rule.block) point.hadamard = rule.hadamard;
    if (rule.adapts()) point.adaptive = rule.scaling.adaptive;
    return point;
  }
  // Adds an operand if it is rounded; dy carries S.
  void AddOperand(int i, Operand operand) {
    const OperandRule& rule = b_.storage->operands[i].Of(operand);
    if (!rule.rounds) return;
    const Operand forward = IsWeight(operand) ? Operand::kForwardW : Operand::kForwardX;
    RoundingPoint& point =
        AddRounded(i, NameOf(operand), NameOf(rule.as_forward ? forward : operand), rule,
                   CarriesS(NameOf(operand)) ? b_.ScaleOf(op_of_[i]->dy) : nullptr);
    point.stats = &b_.stats.host[i + 1].operands[IndexOf(operand)];
    point.backend_stats = &b_.stats.backend[i + 1].operands[IndexOf(operand)];
    if (rule.as_forward) point.laid_as = forward;
    if (rule.block) point.blocks = &b_.stats.host[i + 1].blocks[IndexOf(operand)];
  }
  // The same of attention, where ds carries another S than dy.
  void AddOperands(int i, std::initializer_list<AttentionOperand> operands) {
    for (const AttentionOperand operand : operands) {
      const OperandRule& rule = b_.storage->operands[i].Of(operand);
      if (!rule.rounds) continue;
      const float* scale = nullptr;
      if (TensorOf(operand) == AttentionTensor::kDy) scale = b_.ScaleOf(op_of_[i]->dy);
      if (TensorOf(operand) == AttentionTensor::kDs) scale = b_.scales.host + op_of_[i]->ds_scale;
      RoundingPoint& point = AddRounded(i, NameOf(operand), NameOf(operand), rule, scale);
      const auto& counted = b_.attention_operands.at(i);
      point.stats = &counted.host[IndexOf(operand)].stats;
      point.backend_stats = &counted.backend[IndexOf(operand)].stats;
      if (rule.block) point.blocks = &counted.host[IndexOf(operand)].blocks;
    }
  }
  // dx.dy and dx.w exist only where dx is computed, so not in the first layer.
  void AddBackwardOperands(int i) {
    const OpPlan* op = op_of_[i];
    if (!node(i).kind->has_weight || !op || op->dy < 0) return;
    for (const Operand operand : {Operand::kDwX, Operand::kDwDy}) AddOperand(i, operand);
    if (op->dx.empty() || op->dx[0] < 0) return;
    for (const Operand operand : {Operand::kDxDy, Operand::kDxW}) AddOperand(i, operand);
  }

  void AddDx(int node, int gradient) {
    const char* tensor = b_.plan->gradients[gradient].tensor;
    AddGradient(node, tensor, StatsOf(tensor), gradient);
  }
  // In the order in which they are computed.
  void AddWithinAttention(int i) {
    const std::vector<int>& dx = op_of_[i]->dx;
    const AttentionStorage& within = b_.storage->attention.at(i);
    using enum AttentionOperand;
    AddOperands(i, {kDvP, kDvDy});
    if (dx[2] >= 0) AddDx(i, dx[2]);
    AddOperands(i, {kDpDy, kDpV});
    if (within.rounds_ds)
      Add(i, "ds", within.ds.format, &LayerStats::ds, b_.scales.host + op_of_[i]->ds_scale);
    AddOperands(i, {kDqDs, kDqK});
    if (dx[0] >= 0) AddDx(i, dx[0]);
    AddOperands(i, {kDkDs, kDkQ});
    if (dx[1] >= 0) AddDx(i, dx[1]);
  }

  // The images; their counts are stored in the loss's entry, whose y is unused.
  void AddInput() {
    const TensorScale* own = b_.styles->ScaleOf("input", "y");
    points_.push_back({"input", "y", b_.storage->values[0].format, &b_.stats.host[0].y,
                       &b_.stats.backend[0].y, nullptr, own ? own->per_tensor_scale.host : nullptr,
                       nullptr});
  }
  void AddForward(int i) {
    if (b_.network->MultipliesWeight(i)) Add(i, "w", b_.storage->weights[i].format, &LayerStats::w);
    for (const Operand operand : {Operand::kForwardX, Operand::kForwardW}) AddOperand(i, operand);
    const auto attention = b_.storage->attention.find(i);
    if (attention != b_.storage->attention.end()) {
      using enum AttentionOperand;
      AddOperands(i, {kSQ, kSK});
      if (attention->second.rounds_p) Add(i, "p", attention->second.p.format, &LayerStats::p);
      AddOperands(i, {kYP, kYV});
    }
    if (node(i).rounds_output()) Add(i, "y", b_.storage->values[i + 1].format, &LayerStats::y);
  }
  void AddBackward() {
    const Plan& plan = *b_.plan;
    for (const int gradient : plan.loss_gradients) AddDx(kLossNode, gradient);
    for (int i = nodes_ - 1; i >= 0; --i) {
      if (branch_of_[i] >= 0)
        AddGradient(i, "dy", &LayerStats::dy, plan.branches[branch_of_[i]].sum);
      AddBackwardOperands(i);
      if ((node(i).kind->has_weight && node(i).tied_to < 0) || node(i).kind->gathers_weight)
        Add(i, "dw", b_.storage->weight_gradients[i].format, &LayerStats::dw);
      if (!op_of_[i] || !op_of_[i]->has_backward) continue;
      if (!node(i).kind->decisions.empty()) {
        AddWithinAttention(i);
        continue;
      }
      for (const int dx : op_of_[i]->dx) {
        if (dx >= 0 && plan.gradients[dx].rounds) AddDx(i, dx);
      }
    }
  }

  const Bindings& b_;
  const int nodes_;
  std::vector<const OpPlan*> op_of_;  // by node: the op that starts there; null: none
  std::vector<int> branch_of_;        // by node: where its output's gradients meet; -1: nowhere
  std::vector<RoundingPoint> points_;
};

// Goes through ops, because an observer is shown only what really is in memory: nothing inside a
// chain, and no tensor that a consumer recomputes.
class ObservationLister {
 public:
  explicit ObservationLister(const Bindings& bindings) : b_(bindings), plan_(*bindings.plan) {}

  ObservationPlan List() {
    for (const OpPlan& op : plan_.ops) AddForward(op, list_.forward.emplace_back());
    if (!b_.training) return std::move(list_);
    list_.backward.resize(plan_.backward.size() + 1);
    for (const int gradient : plan_.loss_gradients)
      AddGradient("loss", plan_.gradients[gradient].tensor, gradient, gradient);
    for (auto op = plan_.ops.rbegin(); op != plan_.ops.rend(); ++op) AddBackward(*op);
    return std::move(list_);
  }

 private:
  // x is not shown for layers with several inputs, nor for embeddings, whose x is tokens.
  void AddForward(const OpPlan& op, std::vector<ObservedTensor>& seen) const {
    const Node& node = b_.network->nodes[op.node];
    const Node& last = b_.network->nodes[op.last()];
    if (!node.kind->joins && !node.kind->reads_tokens && op.recomputed < 0)
      seen.push_back({b_.NameOf(op.node), "x", b_.Value(node.inputs[0])});
    if (op.consumer >= 0) return;
    seen.push_back({b_.NameOf(op.last()), "y", b_.Value(op.output), nullptr, last.rounds_output()});
  }

  void AddBackward(const OpPlan& op) {
    if (op.dy >= 0 && op.consumer < 0) {
      const GradientPlan& dy = plan_.gradients[op.dy];
      // An addition passes the sum of its output's branches on to the layers before it.
      const bool sum = dy.source == GradientPlan::Source::kBranchSum && dy.node == op.last();
      AddGradient(b_.NameOf(op.last()), "dy", op.dy, sum ? op.dy : -1);
    }
    if (op.recomputed >= 0) return;
    // The dx of a concatenation are slices of its dy, which was shown.
    const bool joins = b_.network->nodes[op.node].kind->joins;
    for (const int dx : op.dx) {
      if (dx < 0 || (joins && !plan_.gradients[dx].rounds)) continue;
      AddGradient(b_.NameOf(op.node), plan_.gradients[dx].tensor, dx, dx);
    }
  }

  // `own`: the gradient whose rounding is counted under this name; -1: none.
  void AddGradient(const std::string& layer, const char* tensor, int gradient, int own) {
    const bool rounded = own >= 0 && plan_.gradients[own].rounds;
    list_.backward[WriterOf(gradient) + 1].push_back(
        {layer, tensor, b_.Grad(gradient).tensor, b_.ScaleOf(gradient), rounded});
  }

  // The step of the backward pass that writes a gradient; -1: the loss.
  int WriterOf(int gradient) const {
    const GradientPlan& g = plan_.gradients[gradient];
    if (g.node == kLossNode) return -1;
    for (std::size_t i = 0; i < plan_.backward.size(); ++i) {
      const BackwardStep& step = plan_.backward[i];
      const bool writes = step.branch >= 0 ? plan_.branches[step.branch].sum == gradient
                                           : g.source != GradientPlan::Source::kBranchSum &&
                                                 plan_.ops[step.op].node == g.node;
      if (writes) return static_cast<int>(i);
    }
    throw InternalError("a gradient that nobody writes");
  }

  const Bindings& b_;
  const Plan& plan_;
  ObservationPlan list_;
};

}  // namespace

std::vector<RoundingPoint> ListRoundings(const Bindings& bindings) {
  return PointLister(bindings).Roundings();
}

namespace {

// take(node, matmul) for each matmul that is computed: dx of the first layer is not, nor is there
// a dw without a weight.
template <class Take>
void ForMatmuls(const Bindings& bindings, Take&& take) {
  for (const OpPlan& op : bindings.plan->ops) {
    const bool has_dx = std::any_of(op.dx.begin(), op.dx.end(), [](int dx) { return dx >= 0; });
    const bool has_weight = bindings.network->nodes[op.node].kind->has_weight;
    if (!has_weight && bindings.network->nodes[op.node].kind->decisions.empty()) continue;
    take(op.node, scaling::LayerMatmul::kForward);
    if (op.dy >= 0 && has_dx) take(op.node, scaling::LayerMatmul::kDx);
    if (op.dy >= 0 && has_weight) take(op.node, scaling::LayerMatmul::kDw);
  }
}

}  // namespace

std::vector<SumPoint> ListSums(const Bindings& bindings) {
  std::vector<SumPoint> list;
  ForMatmuls(bindings, [&](int node, scaling::LayerMatmul matmul) {
    const std::size_t p = scaling::IndexOf(matmul);
    const auto& rule = bindings.storage->accumulators[static_cast<std::size_t>(node)][p];
    if (rule)
      list.push_back(
          {bindings.NameOf(node), matmul, *rule, &bindings.stats.host[node + 1].sums[p]});
  });
  return list;
}

std::vector<SumPoint> ListJudgedSums(const Bindings& bindings) {
  std::vector<SumPoint> list;
  for (std::size_t rule = 0; rule < bindings.judged_rules.size(); ++rule) {
    ForMatmuls(bindings, [&](int node, scaling::LayerMatmul matmul) {
      const std::size_t at = bindings.JudgedAt(rule, node, scaling::IndexOf(matmul));
      list.push_back({bindings.NameOf(node), matmul, bindings.judged_rules[rule],
                      bindings.judged.host + at, rule});
    });
  }
  return list;
}

// In the order of AttentionOperand, whose first four are those of the forward pass.
std::vector<JudgedOperandPoint> ListJudgedOperands(const Bindings& bindings) {
  std::vector<JudgedOperandPoint> list;
  for (const OpPlan& op : bindings.plan->ops) {
    const auto counts = bindings.judged_operands.find(op.node);
    if (counts == bindings.judged_operands.end()) continue;
    for (std::size_t i = 0; i < kAttentionOperands; ++i) {
      const auto operand = static_cast<AttentionOperand>(i);
      if (!op.has_backward && i >= IndexOf(AttentionOperand::kDvP)) break;
      const AttentionTensor tensor = TensorOf(operand);
      const float* scale = tensor == AttentionTensor::kDy   ? bindings.ScaleOf(op.dy)
                           : tensor == AttentionTensor::kDs ? bindings.scales.host + op.ds_scale
                                                            : nullptr;
      for (std::size_t format = 0; format < bindings.judged_formats.size(); ++format)
        list.push_back({bindings.NameOf(op.node), operand, format,
                        counts->second.host + format * kAttentionOperands + i, scale});
    }
  }
  return list;
}

std::vector<ScalePoint> ListScales(const Bindings& bindings) {
  return PointLister(bindings).Scales();
}

std::vector<ScaledTensor> ListScaledTensors(const Bindings& bindings,
                                            const std::vector<RoundingPoint>& roundings) {
  std::vector<ScaledTensor> list;
  for (const RoundingPoint& point : roundings)
    if (TensorScale* scale = bindings.styles->ScaleOf(point.layer, point.tensor))
      list.push_back({point.layer, point.tensor, scale, bindings.training ? point.stats : nullptr});
  return list;
}

ObservationPlan ListObserved(const Bindings& bindings) {
  return ObservationLister(bindings).List();
}

}  // namespace ada::graph
