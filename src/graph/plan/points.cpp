// See points.h.
#include "graph/plan/points.h"

namespace ada::graph {
namespace {

constexpr int kLossNode = -1;

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

  std::vector<RoundingPoint> Roundings() {
    for (int i = 0; i < nodes_; ++i) AddForward(i);
    if (b_.training) AddBackward();
    return std::move(points_);
  }

  std::vector<ScalePoint> Scales() {
    std::vector<ScalePoint> scales;
    for (int i = nodes_ - 1; i >= 0; --i) {
      if (branch_of_[i] >= 0) {
        scales.push_back({b_.NameOf(i), b_.decisions.host + branch_of_[i], nullptr});
      }
      if (!node(i).kind->chooses_scale || !op_of_[i] || op_of_[i]->dx < 0) continue;
      scaling::LayerScaler& scaler = b_.scalers.host[i];
      scales.push_back({b_.NameOf(i), &scaler.decision, &scaler});
    }
    return scales;
  }

 private:
  const Node& node(int index) const { return b_.network->nodes[index]; }

  // node: kLossNode for the logit gradient.
  void Add(int node, const char* tensor, const NumberFormat& format, TensorStats LayerStats::*stats,
           const float* scale = nullptr) {
    const std::string layer = node == kLossNode ? "loss" : b_.NameOf(node);
    const TensorScale* own = b_.styles->ScaleOf(layer, tensor);
    points_.push_back({layer, tensor, format, &(b_.stats.host[node + 1].*stats),
                       &(b_.stats.backend[node + 1].*stats), scale,
                       own ? own->own_scale.host : nullptr, b_.styles->BinsOf(layer, tensor)});
  }
  void AddGradient(int node, const char* tensor, TensorStats LayerStats::*stats, int gradient) {
    const NumberFormat& format = b_.plan->gradients[gradient].stored_as.format;
    Add(node, tensor, format, stats, b_.ScaleOf(gradient));
  }

  void AddForward(int i) {
    if (node(i).kind->has_weight) Add(i, "w", b_.storage->weights[i].format, &LayerStats::w);
    if (node(i).kind->rounds_output) Add(i, "y", b_.storage->values[i + 1].format, &LayerStats::y);
  }
  void AddBackward() {
    const Plan& plan = *b_.plan;
    AddGradient(kLossNode, "dx", &LayerStats::dx, plan.loss_gradient);
    for (int i = nodes_ - 1; i >= 0; --i) {
      if (branch_of_[i] >= 0)
        AddGradient(i, "dy", &LayerStats::dy, plan.branches[branch_of_[i]].sum);
      if (node(i).kind->has_weight)
        Add(i, "dw", b_.storage->weight_gradients[i].format, &LayerStats::dw);
      const OpPlan* op = op_of_[i];
      if (!op || op->dx < 0 || !plan.gradients[op->dx].rounds) continue;
      AddGradient(i, "dx", &LayerStats::dx, op->dx);
    }
  }

  const Bindings& b_;
  const int nodes_;
  std::vector<const OpPlan*> op_of_;  // by node: the op that starts there; null: none
  std::vector<int> branch_of_;        // by node: where its output's gradients meet; -1: nowhere
  std::vector<RoundingPoint> points_;
};

}  // namespace

std::vector<RoundingPoint> ListRoundings(const Bindings& bindings) {
  return PointLister(bindings).Roundings();
}

std::vector<ScalePoint> ListScales(const Bindings& bindings) {
  return PointLister(bindings).Scales();
}

std::vector<ScaledTensor> ListScaledTensors(const Bindings& bindings,
                                            const std::vector<RoundingPoint>& roundings) {
  std::vector<ScaledTensor> list;
  const auto add = [&](const std::string& layer, const std::string& tensor,
                       const TensorStats* stats) {
    TensorScale* scale = bindings.styles->ScaleOf(layer, tensor);
    if (!scale) return;
    list.push_back({layer + "." + tensor, scale, bindings.training ? stats : nullptr});
  };
  add("input", "y", &bindings.stats.host[0].y);
  for (const RoundingPoint& point : roundings) add(point.layer, point.tensor, point.stats);
  return list;
}

}  // namespace ada::graph
