// See watch.h.
#include "graph/plan/observed.h"

#include "core/error.h"

namespace ada::graph {
namespace {

class ObservationLister {
 public:
  explicit ObservationLister(const Bindings& bindings) : b_(bindings), plan_(*bindings.plan) {}

  ObservationPlan List() {
    for (const OpPlan& op : plan_.ops) AddForward(op, list_.forward.emplace_back());
    if (!b_.training) return std::move(list_);
    list_.backward.resize(plan_.backward.size() + 1);
    AddGradient("loss", "dx", plan_.loss_gradient, plan_.loss_gradient);
    for (auto op = plan_.ops.rbegin(); op != plan_.ops.rend(); ++op) AddBackward(*op);
    return std::move(list_);
  }

 private:
  void AddForward(const OpPlan& op, std::vector<ObservedTensor>& seen) const {
    const Node& node = b_.network->nodes[op.node];
    const Node& last = b_.network->nodes[op.last()];
    if (!node.kind->joins && op.recomputed < 0)
      seen.push_back({b_.NameOf(op.node), "x", b_.Value(node.inputs[0])});
    if (op.consumer >= 0) return;
    seen.push_back(
        {b_.NameOf(op.last()), "y", b_.Value(op.output), nullptr, last.kind->rounds_output});
  }

  void AddBackward(const OpPlan& op) {
    if (op.dy >= 0 && op.consumer < 0) {
      const GradientPlan& dy = plan_.gradients[op.dy];
      const bool sum = dy.source == GradientPlan::Source::kBranchSum;
      AddGradient(b_.NameOf(op.last()), "dy", op.dy, sum ? op.dy : -1);
    }
    if (op.dx >= 0 && op.recomputed < 0) AddGradient(b_.NameOf(op.node), "dx", op.dx, op.dx);
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
    if (gradient == plan_.loss_gradient) return -1;
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

ObservationPlan ListObserved(const Bindings& bindings) {
  return ObservationLister(bindings).List();
}

}  // namespace ada::graph
