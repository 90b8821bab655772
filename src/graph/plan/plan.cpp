// Plans by going through the execution once, step by step, before any memory exists.
#include "graph/plan/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "error.h"
#include "number/number_grid.h"

namespace ada::graph {
namespace {

// Simulates the execution step by step (`now_`) and records what each step reads and writes.
// Forward first, which determines how long values live; then backward from the loss, where each op
// takes the gradients that its consumers put into contributions_, summed if there are several.
class ExecutionPlanner {
 public:
  ExecutionPlanner(const Network& network, const PlanSpec& spec)
      : network_(network),
        spec_(spec),
        values_(static_cast<int>(network.nodes.size()) + 1),
        needs_(network.NeedsGradient()),
        contributions_(values_) {}

  Plan Run() {
    PlaceOps();
    PlanForward();
    DeferAmaxOfValues();
    if (spec_.training) PlanBackward();
    return std::move(plan_);
  }

 private:
  // The contribution of one consumer to the gradient of a value.
  struct Contribution {
    int consumer;  // node
    int gradient;
  };

  const Node& node(const OpPlan& op) const { return network_.nodes[op.node]; }
  // The first input that is actually stored in memory.
  int StoredInput(const OpPlan& op) const {
    return (op.recomputed >= 0 ? network_.nodes[op.recomputed] : node(op)).inputs[0];
  }

  // The life begins at the current step; Touch extends it to each later step that reads.
  int NewBuffer(const Shape& image, const TensorStorage& stored_as) {
    const std::int64_t numel = image.per_image() * spec_.images;
    plan_.buffers.push_back(
        {static_cast<std::size_t>(numel) * BytesOf(stored_as.storage), now_, now_});
    return static_cast<int>(plan_.buffers.size()) - 1;
  }
  int NewBuffer(int value, const TensorStorage& stored_as) {
    return NewBuffer(network_.shape(value), stored_as);
  }
  // Whether the largest magnitude of what this node rounds can be left to others.
  bool DefersAmax(int node, const TensorStorage& stored_as) const {
    return spec_.training && !spec_.stochastic && node >= 0 &&
           network_.nodes[node].kind->defers_amax && stored_as.storage != Storage::kF32 &&
           stored_as.format == FormatOf(stored_as.storage);
  }
  int NewValueBuffer(int value) { return NewBuffer(value, spec_.storage->values[value]); }
  void Touch(int buffer) { plan_.buffers[buffer].last = now_; }
  // Tokens are outside of the plan.
  void TouchValue(int value) {
    if (value > 0 || !network_.reads_tokens()) Touch(plan_.value_buffers[value]);
  }
  void TouchInputs(const OpPlan& op) {
    TouchValue(StoredInput(op));
    for (std::size_t i = 1; i < node(op).inputs.size(); ++i) TouchValue(node(op).inputs[i]);
  }
  void TouchGradient(int gradient) { Touch(plan_.gradients[gradient].buffer); }
  // Awaited contributions keep a buffer from being overwritten in place (FitsInPlace).
  void Contribute(int value, const Contribution& contribution) {
    contributions_[value].push_back(contribution);
    ++awaited_[plan_.gradients[contribution.gradient].buffer];
  }

  void PlaceOps();
  void PlanForward();
  void DeferAmaxOfValues();
  void DeferAmax(int gradient, bool takes);
  void PlanBackward();
  void PlanOpBackward(int index);
  void ReadForBackward(const OpPlan& op);
  // The complete gradient of a value, as an index into plan_.gradients: the only contribution, or
  // the sum of all. Called when every consumer has been planned.
  int GradientOf(int value);
  int SumBranches(int value, std::vector<Contribution>& contributions);
  void MakeRounded(GradientPlan& gradient, const TensorStorage& stored_as);
  int NewGradient(const GradientPlan& gradient);
  int NewDx(OpPlan& op, std::size_t input);
  void PlanAttention(OpPlan& op);
  void AskMoments(const OpPlan& op, const scaling::LayerRule& rule);
  int NewMasked(const OpPlan& op);
  bool FitsInPlace(const OpPlan& op, const TensorStorage& dx);

  const Network& network_;
  const PlanSpec& spec_;
  const int values_;
  // By value: whether a gradient of it is needed.
  const std::vector<bool> needs_;
  // By value; a consumer that is not planned yet is missing.
  std::vector<std::vector<Contribution>> contributions_;
  std::map<int, int> awaited_;  // by buffer: contributions in it that are not read yet
  std::set<int> read_;          // gradients that an op planned so far reads
  Plan plan_;
  int now_ = 0;
  // Group numbers are only compared: gradients with equal numbers need no common scale.
  int scale_groups_ = 0;
};

// A chain runs in the place of its last layer, because only there all its inputs exist.
void ExecutionPlanner::PlaceOps() {
  std::vector<OpPlan> at(values_ - 1);
  for (int i = 0; i < values_ - 1; ++i) at[i].node = i;
  for (const Chain& chain : spec_.chains) {
    for (const int part : {chain.batch_norm, chain.add, chain.relu}) {
      if (part >= 0) at[part].node = -1;
    }
    OpPlan& op = at[chain.last()];
    op.node = chain.batch_norm;
    op.add = chain.add;
    op.relu = chain.relu;
    op.consumer = chain.consumer;
    if (chain.consumer >= 0) at[chain.consumer].recomputed = chain.batch_norm;
    if (chain.add < 0) continue;
    const std::vector<int>& inputs = network_.nodes[chain.add].inputs;
    op.addend = inputs[0] == chain.batch_norm + 1 ? inputs[1] : inputs[0];
  }
  for (OpPlan& op : at) {
    if (op.node < 0) continue;
    op.output = op.last() + 1;
    plan_.ops.push_back(op);
  }
}

// A chain's output is written in the place of its last layer; a chain with a consumer has no
// buffer, and its input is read by the consumer (StoredInput), possibly later.
void ExecutionPlanner::PlanForward() {
  plan_.value_buffers.assign(values_, -1);
  if (!network_.reads_tokens()) plan_.value_buffers[0] = NewValueBuffer(0);
  for (const OpPlan& op : plan_.ops) {
    ++now_;
    TouchInputs(op);
    if (op.addend >= 0) TouchValue(op.addend);
    if (op.consumer < 0) plan_.value_buffers[op.output] = NewValueBuffer(op.output);
  }
  ++now_;
  for (const int output : network_.outputs) TouchValue(output);
}

// The first op that reads a value as its x can compute the maximum on the way. That is possible
// only if rounding is to nearest and the value is stored in the format itself.
void ExecutionPlanner::DeferAmaxOfValues() {
  plan_.amax_deferred_to.assign(values_, -1);
  for (int i = 0; i < values_ - 1; ++i) {
    const int value = network_.nodes[i].inputs[0];
    int& reader = plan_.amax_deferred_to[value];
    if (reader < 0 && network_.nodes[i].kind->takes_amax_of_x &&
        DefersAmax(value - 1, spec_.storage->values[value]))
      reader = i;
  }
}

// Defers the largest magnitude of a gradient to what now reads it, if that takes it and nothing has
// read it before.
void ExecutionPlanner::DeferAmax(int gradient, bool takes) {
  if (!read_.insert(gradient).second) return;
  GradientPlan& dy = plan_.gradients[gradient];
  dy.amax_deferred = takes && dy.source == GradientPlan::Source::kDx && dy.rounds &&
                     DefersAmax(dy.node, dy.stored_as);
}

// A relu at the end of a chain keeps its output like a relu by itself. A consumer recomputes x and
// the mask from the batch norm's x.
void ExecutionPlanner::ReadForBackward(const OpPlan& op) {
  const layers::LayerKind& kind = *node(op).kind;
  if (kind.keeps_input) TouchInputs(op);
  const bool masks = op.relu >= 0 && op.consumer < 0;
  if (masks || kind.keeps_output) TouchValue(op.output);
}

int ExecutionPlanner::NewGradient(const GradientPlan& gradient) {
  plan_.gradients.push_back(gradient);
  return static_cast<int>(plan_.gradients.size()) - 1;
}

void ExecutionPlanner::MakeRounded(GradientPlan& gradient, const TensorStorage& stored_as) {
  gradient.rounds = true;
  gradient.stored_as = stored_as;
}

// Whether dx may overwrite dy: dy is read value by value, and by no other op from now on. Not if an
// addition in the chain passes the same dy on, nor if another op still needs it, nor if dx needs a
// wider data type.
bool ExecutionPlanner::FitsInPlace(const OpPlan& op, const TensorStorage& dx) {
  const GradientPlan& dy = plan_.gradients[op.dy];
  const bool handed_on = op.addend >= 0 && needs_[op.addend];
  return node(op).kind->dx_in_place && !handed_on && awaited_[dy.buffer] == 0 &&
         dy.stored_as.storage == dx.storage;
}

// Starts as a copy of dy's plan, so that a dx that is not rounded keeps the format, data type,
// scale and group of its dy.
int ExecutionPlanner::NewDx(OpPlan& op, std::size_t input) {
  const Node& part = node(op);
  GradientPlan dx = plan_.gradients[op.dy];
  dx.source = GradientPlan::Source::kDx;
  dx.came_from = op.dy;
  dx.node = op.node;
  dx.value = part.inputs[input];
  dx.input = static_cast<int>(input);
  dx.tensor = input == 1 ? "dx2" : "dx";
  dx.first = dx.channels = 0;
  dx.rounds = dx.moments = dx.all_moments = dx.amax_deferred = false;
  if (part.rounds_gradient()) {
    ADA_CHECK(input < 2);  // names of tensors, and counts, exist only for two
    MakeRounded(dx, spec_.storage->GradientFrom(part, dx.value));
  }
  if (!FitsInPlace(op, dx.stored_as)) dx.buffer = NewBuffer(dx.value, dx.stored_as);
  if (part.kind->Chooses(spec_.scales_batch_norms)) {
    const scaling::LayerRule& rule = spec_.rules[op.node];
    op.chooses_scale = true;
    dx.scale = plan_.scales++;
    // A rule that always gives alpha 1 leaves the scale in its group: sums of branches then need no
    // rescaling for it.
    if (rule.method != scaling::LayerMethod::kPass) dx.scale_group = scale_groups_++;
    if (part.kind->chooses_scale) AskMoments(op, rule);
  }
  return NewGradient(dx);
}

// The op that writes dy computes them while it has the values at hand.
void ExecutionPlanner::AskMoments(const OpPlan& op, const scaling::LayerRule& rule) {
  if (!scaling::MayNeedMoments(rule)) return;
  GradientPlan& dy = plan_.gradients[op.dy];
  ADA_CHECK(dy.source != GradientPlan::Source::kMasked);
  dy.moments = true;
  dy.all_moments |= scaling::MayNeedAllMoments(rule);
}

// The gradients of queries, keys and values, as three inputs or as the parts of one.
void ExecutionPlanner::PlanAttention(OpPlan& op) {
  constexpr const char* kTensors[] = {"dq", "dk", "dv"};
  constexpr std::size_t kDecisions[] = {2, 3, 0};  // of the kind's, by tensor
  const Node& part = node(op);
  const bool fused = part.inputs.size() == 1;
  const auto rule = [&](std::size_t decision) -> const scaling::LayerRule& {
    return spec_.rules[static_cast<std::size_t>(spec_.first_decision[op.node]) + decision];
  };
  const auto passes = [&](std::size_t decision) {
    return rule(decision).method == scaling::LayerMethod::kPass;
  };
  // Decisions dv and ds look at dy itself; dq and dk at ds, which no tensor of the plan holds.
  AskMoments(op, rule(0));
  AskMoments(op, rule(1));
  op.ds_scale = plan_.scales++;
  const int width = static_cast<int>(part.output.c) / part.config.heads;
  const int channels[] = {part.config.heads * width, part.config.kv_heads * width,
                          part.config.kv_heads * width};
  const int dy_group = plan_.gradients[op.dy].scale_group;
  int first = 0;
  for (std::size_t i = 0; i < 3; ++i) {
    const int value = part.inputs[fused ? 0 : i];
    GradientPlan dx;
    dx.node = op.node, dx.value = value, dx.input = static_cast<int>(i), dx.tensor = kTensors[i];
    if (fused) dx.first = first, dx.channels = channels[i];
    first += channels[i];
    dx.stored_as = spec_.storage->attention.at(op.node).gradients;
    dx.rounds = true;
    dx.scale = plan_.scales++;
    // S of dq and dk is the S of ds times alpha, and ds has a decision of its own; dv is computed
    // directly from dy.
    const bool passes_on = passes(kDecisions[i]) && (i == 2 || passes(1));
    dx.scale_group = passes_on ? dy_group : scale_groups_++;
    if (!needs_[value]) {
      op.dx.push_back(-1);
      continue;
    }
    Shape shape = network_.shape(value);
    shape.c = channels[i];
    dx.buffer = NewBuffer(shape, dx.stored_as);
    op.dx.push_back(NewGradient(dx));
    Contribute(value, {op.node, op.dx.back()});
  }
}

// Uses the buffer and scale of dy: the op zeroes values in place, which were counted when they were
// rounded.
int ExecutionPlanner::NewMasked(const OpPlan& op) {
  GradientPlan masked = plan_.gradients[op.dy];
  masked.source = GradientPlan::Source::kMasked;
  masked.came_from = op.dy;
  masked.node = op.node;
  masked.rounds = masked.moments = masked.all_moments = masked.amax_deferred = false;
  return NewGradient(masked);
}

// Sums in the order of the consumers, whatever the order in which they ran, so that the sum is that
// of the unfused execution. Branches of different groups need their largest magnitudes, to choose a
// scale at which all fit.
int ExecutionPlanner::SumBranches(int value, std::vector<Contribution>& contributions) {
  std::stable_sort(
      contributions.begin(), contributions.end(),
      [](const Contribution& a, const Contribution& b) { return a.consumer < b.consumer; });
  ++now_;
  BranchPlan branch;
  branch.value = value;
  bool equal_scales = true;
  const int group = plan_.gradients[contributions[0].gradient].scale_group;
  for (const Contribution& contribution : contributions) {
    branch.branches.push_back(contribution.gradient);
    DeferAmax(contribution.gradient, /*takes=*/true);
    TouchGradient(contribution.gradient);
    equal_scales = equal_scales && plan_.gradients[contribution.gradient].scale_group == group;
  }
  // With rounding to nearest the largest magnitude before gives that after rounding.
  for (const int gradient : branch.branches) {
    GradientPlan& plan = plan_.gradients[gradient];
    const bool is_known = plan.rounds && !spec_.stochastic;
    plan.moments |= !equal_scales && !is_known && plan.source != GradientPlan::Source::kMasked;
  }
  GradientPlan sum;
  sum.tensor = "dy";
  sum.source = GradientPlan::Source::kBranchSum;
  sum.node = value - 1;
  sum.value = value;
  sum.scale = plan_.scales++;
  sum.scale_group = scale_groups_++;
  MakeRounded(sum, spec_.storage->gradients[value]);
  sum.buffer = NewBuffer(value, sum.stored_as);
  branch.sum = NewGradient(sum);
  plan_.backward.push_back({-1, static_cast<int>(plan_.branches.size())});
  plan_.branches.push_back(branch);
  return branch.sum;
}

int ExecutionPlanner::GradientOf(int value) {
  std::vector<Contribution>& contributions = contributions_[value];
  ADA_CHECK(!contributions.empty());
  for (const Contribution& c : contributions) --awaited_[plan_.gradients[c.gradient].buffer];
  const bool whole = plan_.gradients[contributions[0].gradient].channels == 0;
  return contributions.size() == 1 && whole ? contributions[0].gradient
                                            : SumBranches(value, contributions);
}

// An op without a backward step (an addition) passes its dy on, in one buffer, as the contribution
// to each input.
void ExecutionPlanner::PlanOpBackward(int index) {
  OpPlan& op = plan_.ops[index];
  op.dy = GradientOf(op.output);
  if (node(op).kind->hands_gradient_on) {
    for (const int value : node(op).inputs) {
      if (needs_[value]) Contribute(value, {op.node, op.dy});
    }
    return;
  }
  ++now_;
  op.has_backward = true;
  DeferAmax(op.dy, node(op).kind->takes_amax_of_dy);
  TouchGradient(op.dy);
  ReadForBackward(op);
  const std::vector<int>& inputs = node(op).inputs;
  const bool decides_within = !node(op).kind->decisions.empty();
  if (decides_within) PlanAttention(op);
  for (std::size_t i = 0; i < inputs.size() && !decides_within; ++i) {
    op.dx.push_back(needs_[inputs[i]] ? NewDx(op, i) : -1);
    if (needs_[inputs[i]]) Contribute(inputs[i], {op.node, op.dx.back()});
  }
  if (op.addend >= 0 && needs_[op.addend]) {
    Contribute(op.addend, {op.add, op.relu >= 0 ? NewMasked(op) : op.dy});
  }
  plan_.backward.push_back({index, -1});
}

void ExecutionPlanner::PlanBackward() {
  ++now_;
  GradientPlan loss;  // all outputs' gradients carry the one S of the loss
  loss.scale = plan_.scales++;
  loss.scale_group = scale_groups_++;
  for (std::size_t i = 0; i < network_.outputs.size(); ++i) {
    loss.value = network_.outputs[i];
    loss.input = static_cast<int>(i);
    loss.tensor = i == 1 ? "dx2" : "dx";
    TouchValue(loss.value);
    MakeRounded(loss, spec_.storage->gradients[loss.value]);
    loss.buffer = NewBuffer(loss.value, loss.stored_as);
    plan_.loss_gradients.push_back(NewGradient(loss));
    // Consumer number values_ comes after all nodes: the loss is last among the branches of an
    // output that layers read too.
    Contribute(loss.value, {values_, plan_.loss_gradients.back()});
  }
  for (int index = static_cast<int>(plan_.ops.size()) - 1; index >= 0; --index) {
    if (needs_[plan_.ops[index].output]) PlanOpBackward(index);
  }
}

}  // namespace

Plan MakePlan(const Network& network, const PlanSpec& spec) {
  return ExecutionPlanner(network, spec).Run();
}

}  // namespace ada::graph
