// Makes what no plan changes, then plans, allocates and asks the backend for ops until no fusion is
// declined.
#include "graph/builder.h"

#include "error.h"
#include "graph/network/parameters.h"
#include "graph/network/tensor_storage.h"
#include "graph/plan/plan.h"

namespace ada::graph {
namespace {

// `dx_format` is the format that the layer's dx is rounded to, `dy_format` that of the dy it reads.
ScalerRequest RequestFor(const Node& node, const NumberFormat& dx_format,
                         const NumberFormat& dy_format) {
  const layers::Fans fans = node.kind->fans ? node.kind->fans(node.config) : layers::Fans{};
  // A layer with parameters multiplies its gradient by them.
  return {node.config.name, fans.reference,          fans.exact,
          dx_format,        node.kind->is_trained(), dy_format};
}

// Sizes are checked before anything is allocated: a network that no machine holds is an error of
// the configuration, not a failed allocation.
Network ResolveFor(const GraphSpec& spec, const backend::Backend& backend) {
  ADA_CHECK(spec.model != nullptr && spec.input.n >= 1);
  Network network = Resolve(*spec.model, spec.input, spec.task);
  RefuseHuge(network, spec.input.n, spec.model->where);
  RefuseOutputsBeyond(backend.most_values(), network, spec.input.n);
  return network;
}

}  // namespace

// The order of members is the order of construction: the network, then how its tensors are kept,
// then the graph whose arenas the styles use.
Builder::Builder(const GraphSpec& spec, backend::Backend& backend, const Graph* share)
    : spec_(spec),
      backend_(backend),
      share_(share),
      network_(ResolveFor(spec, backend)),
      storage_(ResolveStorage(network_, spec.precision)),
      graph_(new Graph(backend, network_.nodes.size())),
      styles_(spec, share, graph_->tensor_scales_, graph_->results_, graph_->bins_) {}

std::unique_ptr<Graph> Builder::Build() {
  RefuseTables(network_, storage_, backend_.rounds_by_tables());
  Bind();
  AddLayerRows();
  AskRules();
  AddChannelMoments();
  AddPositions();
  // Each round that fails adds to `limits_`, so that the loop must end.
  while (!MakeOps()) {
  }
  FillLists();
  graph_->owned_scales_ = styles_.TakeOwned();
  // Objects were initialized on the host; this makes them visible to ops.
  for (SharedArena* arena : {&graph_->results_, &graph_->bins_, &graph_->branches_,
                             &graph_->tensor_scales_, &graph_->layer_scalers_})
    arena->Send();
  return std::move(graph_);
}

void Builder::Bind() {
  NetworkParameters parameters = MakeParameters(
      network_, spec_.training, backend_, share_ != nullptr ? &share_->parameters() : nullptr);
  graph_->parameters_ = std::move(parameters.all);
  // Scalers of nodes come first, by node; those of decisions within nodes follow.
  std::size_t scalers = network_.nodes.size();
  for (const Node& node : network_.nodes) {
    const std::size_t within = node.kind->decisions.size();
    bindings_.first_decision.push_back(within > 0 ? static_cast<int>(scalers) : -1);
    scalers += within;
  }
  graph_->scalers_ = graph_->layer_scalers_.Add<scaling::LayerScaler>(scalers);
  bindings_.network = &network_;
  bindings_.plan = &plan_;
  bindings_.storage = &storage_;
  bindings_.styles = &styles_;
  bindings_.images = spec_.input.n;
  bindings_.training = spec_.training;
  bindings_.parameters = &graph_->parameters_;
  bindings_.parameters_of = std::move(parameters.of);
  if (network_.reads_tokens()) BindTokens();
  bindings_.stats = graph_->results_.Add<LayerStats>(network_.nodes.size() + 1);
  for (const auto& [node, within] : storage_.attention)
    if (storage_.operands[static_cast<std::size_t>(node)].any())
      bindings_.attention_operands[node] =
          graph_->results_.Add<AttentionOperandStats>(kAttentionOperands);
  if (spec_.training && !spec_.judged_formats.empty()) {
    bindings_.judged_formats = spec_.judged_formats;
    for (const auto& [node, within] : storage_.attention)
      bindings_.judged_operands[node] =
          graph_->results_.Add<BlockCounts>(spec_.judged_formats.size() * kAttentionOperands);
  }
  if (spec_.training && !spec_.judged_sums.empty()) {
    bindings_.judged_rules = spec_.judged_sums;
    bindings_.judged = graph_->results_.Add<scaling::AccumulatorCounts>(
        spec_.judged_sums.size() * network_.nodes.size() * scaling::kLayerMatmuls);
  }
  bindings_.scalers = graph_->scalers_;
}

// Like images, tokens are outside of the memory plan: they are filled in before the pass begins.
void Builder::BindTokens() {
  Tensor& tokens = graph_->tokens_;
  tokens.shape = spec_.input;
  tokens.data = backend_.Allocate(tokens.bytes());
  bindings_.tokens = tokens;
}

// What the logs and the table of --dry-run show of each layer.
void Builder::AddLayerRows() {
  graph_->last_norms_ = LastNorms(network_);
  graph_->input_format_ = storage_.values[0].format;
  for (std::size_t i = 0; i < network_.nodes.size(); ++i) {
    const Node& node = network_.nodes[i];
    graph_->layers_.push_back({node.config.name, node.config.kind, node.output,
                               node.trained_numel(), node.mflop, storage_.values[i + 1].format,
                               node.kind->has_weight, node.config.stride, node.config.groups,
                               node.config.eps});
  }
}

namespace {

// The scale of a rule that has a state; the policy may move it before each step.
void StartState(scaling::LayerScaler& scaler) {
  if (scaler.rule.method == scaling::LayerMethod::kState)
    scaler.state.state_scale = static_cast<float>(scaler.rule.fixed_scale);
}

}  // namespace

// Only a layer that computes a dx has a rule: one whose input needs no gradient keeps the default,
// alpha 1. Layers are asked for in forward order, so that the last one is the first to decide in
// the backward pass. `rules_` repeats the rules, for the plan.
void Builder::AskRules() {
  const std::vector<bool> needs = network_.NeedsGradient();
  for (std::size_t i = 0; i < network_.nodes.size(); ++i) {
    const Node& node = network_.nodes[i];
    const int input = node.inputs[0];
    const bool chooses = node.kind->Chooses(spec_.scales_batch_norms);
    if (spec_.training && spec_.rule_for && chooses && needs[input]) {
      graph_->scalers_.host[i].rule = spec_.rule_for(RequestFor(
          node, storage_.GradientFrom(node, input).format, storage_.arriving[i + 1].format));
      StartState(graph_->scalers_.host[i]);
    }
    if (needs[i + 1]) AskRulesWithin(i);
  }
  for (std::size_t i = 0; i < graph_->scalers_.count; ++i)
    rules_.push_back(graph_->scalers_.host[i].rule);
}

// Asks for the rules of gradients within a layer, which the authors' program does not have: from
// the one that decides last to the first.
void Builder::AskRulesWithin(std::size_t i) {
  if (!spec_.training || !spec_.rule_for || !spec_.scales_attention) return;
  const Node& node = network_.nodes[i];
  for (std::size_t k = node.kind->decisions.size(); k-- > 0;) {
    const AttentionStorage& storage = storage_.attention.at(static_cast<int>(i));
    const std::string tensor = node.kind->decisions[k].name;
    if (!storage.Decides(tensor)) continue;
    scaling::LayerScaler& scaler =
        graph_->scalers_.host[static_cast<std::size_t>(bindings_.first_decision[i]) + k];
    scaling::LayerRule& rule = scaler.rule;
    const double fan = node.decision_fans[k];
    rule = spec_.rule_for({node.config.name + "." + tensor, fan, fan, storage.gradients.format,
                           true, storage_.arriving[i + 1].format});
    rule.reference = false;
    StartState(scaler);
  }
}

// A convolution whose output only a batch norm reads hands over the sums that the batch norm needs.
void Builder::AddChannelMoments() {
  bindings_.channel_moments.resize(network_.nodes.size());
  if (!spec_.fuse || !spec_.training) return;
  const auto consumers = network_.Consumers();
  for (std::size_t i = 0; i < network_.nodes.size(); ++i) {
    const std::vector<int>& after = consumers[i + 1];
    if (!network_.nodes[i].kind->sums_channels || after.size() != 1 ||
        network_.nodes[after[0]].kind->chain != layers::ChainPart::kNorm) {
      continue;
    }
    Shape shape = network_.nodes[i].output;
    shape.n = spec_.input.n;
    const std::int64_t images = backend_.BlockImages(shape);
    const std::int64_t values = (shape.n + images - 1) / images * shape.c;
    auto* sums = reinterpret_cast<float*>(backend_.Allocate(2 * values * sizeof(float)));
    bindings_.channel_moments[i] = {sums, sums + values};
  }
}

// The positions of maxima are kept from a pool's forward pass to the end of the backward pass.
void Builder::AddPositions() {
  bindings_.positions.resize(network_.nodes.size());
  for (const Node& node : network_.nodes) {
    if (node.pool < 0 || bindings_.positions[node.pool] != nullptr) continue;
    const std::int64_t values = spec_.input.n * network_.nodes[node.pool].output.per_image();
    bindings_.positions[node.pool] = reinterpret_cast<std::uint16_t*>(
        backend_.Allocate(static_cast<std::size_t>(values) * sizeof(std::uint16_t)));
  }
}

// Each round makes a new plan with its buffers, scales, moments and decisions. What the arenas
// allocated for a plan that was given up stays unused.
bool Builder::MakeOps() {
  PlanSpec plan_spec;
  plan_spec.images = spec_.input.n;
  plan_spec.storage = &storage_;
  plan_spec.training = spec_.training;
  plan_spec.stochastic = spec_.precision.stochastic;
  limits_.recompute = spec_.recompute;
  if (spec_.fuse) plan_spec.chains = FindChains(network_, limits_);
  plan_spec.rules = rules_;
  plan_spec.first_decision = bindings_.first_decision;
  plan_spec.scales_batch_norms = spec_.scales_batch_norms;
  plan_ = MakePlan(network_, plan_spec);
  Allocate();
  OpMaker maker(bindings_, backend_);
  if (!MakeForward(maker)) return false;
  MakeBackward(maker);
  MakeEnds(maker);
  return true;
}

// The backend never frees memory, so a block is replaced only when a larger one is needed.
void Builder::Allocate() {
  const MemoryPlan memory = PlanMemory(plan_.buffers);
  if (memory.total > block_bytes_) {
    bindings_.block = backend_.Allocate(memory.total);
    block_bytes_ = memory.total;
  }
  bindings_.offsets = memory.offsets;
  bindings_.scales = graph_->results_.Add<float>(static_cast<std::size_t>(plan_.scales));
  bindings_.moments = graph_->results_.Add<TensorMoments>(plan_.gradients.size());
  bindings_.decisions = graph_->branches_.Add<scaling::ScaleDecision>(plan_.branches.size());
  for (const OpPlan& op : plan_.ops) {
    if (op.consumer >= 0) AllocateRecomputed(op);
  }
}

// Mean, inverse deviation and factor by channel; in training also the two sums by reduction block
// and channel that the consumer's backward pass computes for the batch norm.
void Builder::AllocateRecomputed(const OpPlan& batch_norm) {
  bindings_.recomputed.resize(network_.nodes.size());
  backend::RecomputedNorm& norm = bindings_.recomputed[batch_norm.node];
  if (norm.mean != nullptr) return;  // allocated for an earlier plan
  Shape shape = network_.nodes[batch_norm.node].output;
  shape.n = spec_.input.n;
  const std::int64_t images = backend_.BlockImages(shape);
  const std::int64_t sums =
      spec_.training ? (shape.n + images - 1) / images * shape.c : std::int64_t{0};
  const std::int64_t values = 3 * shape.c + 2 * sums;
  auto* memory = reinterpret_cast<float*>(backend_.Allocate(values * sizeof(float)));
  norm.mean = memory, norm.inverse = memory + shape.c, norm.factor = memory + 2 * shape.c;
  if (spec_.training) norm.sum_dy = memory + 3 * shape.c, norm.sum_dy_xhat = norm.sum_dy + sums;
}

// Once an op has been declined, only ops that may be declined too are asked for, so that one round
// finds all of them, and no ops are made that would be thrown away.
bool Builder::MakeForward(OpMaker& maker) {
  graph_->ops_.clear();
  graph_->forward_.clear();
  bool complete = true;
  for (const OpPlan& op : plan_.ops) {
    std::unique_ptr<backend::Op> made;
    if (complete || !IsSettled(op)) {
      made = maker.Make(op);
      if (!made) Decline(op), complete = false;
    }
    graph_->forward_.push_back(made.get());
    graph_->ops_.push_back(std::move(made));
  }
  return complete;
}

// Whether it need not be asked for in a plan that is given up: it fuses nothing, or the batch norm
// that it reads was declined.
bool Builder::IsSettled(const OpPlan& op) const {
  if (op.recomputed >= 0) return limits_.stored.count(op.recomputed) > 0;
  return op.consumer < 0 && op.last() == op.node;
}

// The chain will be asked for again without its consumer.
void Builder::Decline(const OpPlan& op) {
  if (op.consumer >= 0 || op.recomputed >= 0) {
    limits_.stored.insert(op.consumer >= 0 ? op.node : op.recomputed);
    return;
  }
  ADA_CHECK(op.last() != op.node);  // only what is fused may be declined
  limits_.unchained.insert(op.node);
}

// A step of the backward pass is a forward op, called again for its backward pass, or a sum of
// branches, which is an op without a forward pass.
void Builder::MakeBackward(OpMaker& maker) {
  graph_->backward_.clear();
  graph_->completes_.clear();
  for (const BackwardStep& step : plan_.backward) {
    std::vector<int>& parameters = graph_->completes_.emplace_back();
    if (step.op >= 0) {
      graph_->backward_.push_back(graph_->forward_[step.op]);
      parameters = GradientsOf(plan_.ops[step.op].node);
    } else {
      graph_->ops_.push_back(maker.MakeBranchSum(step.branch, spec_));
      graph_->backward_.push_back(graph_->ops_.back().get());
    }
  }
}

// The trained parameters that belong to a node itself.
std::vector<int> Builder::GradientsOf(int node) const {
  std::vector<int> trained;
  const std::vector<int>& all = bindings_.parameters_of[node];
  for (std::size_t i = network_.nodes[node].tied_to >= 0 ? 1 : 0; i < all.size(); ++i)
    if (graph_->parameters_[static_cast<std::size_t>(all[i])].gradient) trained.push_back(all[i]);
  return trained;
}

// A network of tokens has no input op: its embedding reads the tokens as they are.
void Builder::MakeEnds(OpMaker& maker) {
  graph_->loss_ = maker.MakeLoss(spec_);
  if (network_.reads_tokens()) return;
  Tensor& images = graph_->images_;  // fp32, outside of the plan: filled before the pass begins
  images.shape = spec_.input;
  images.data = backend_.Allocate(images.bytes());
  graph_->input_ = maker.MakeInput(images);
}

// An evaluation graph has per-tensor scales and observers, but no roundings or decisions to be
// logged.
void Builder::FillLists() {
  std::vector<RoundingPoint> roundings = ListRoundings(bindings_);
  graph_->scaled_tensors_ = ListScaledTensors(bindings_, roundings);
  graph_->observed_ = ListObserved(bindings_);
  for (const int value : network_.outputs) graph_->outputs_.push_back(bindings_.Value(value));
  if (!spec_.training) return;
  graph_->roundings_ = std::move(roundings);
  if (spec_.training)
    graph_->sums_ = ListSums(bindings_), graph_->judged_sums_ = ListJudgedSums(bindings_);
  graph_->judged_operands_ = ListJudgedOperands(bindings_);
  graph_->scales_ = ListScales(bindings_);
}

std::unique_ptr<Graph> Graph::Build(const GraphSpec& spec, backend::Backend& backend,
                                    const Graph* share) {
  return Builder(spec, backend, share).Build();
}

}  // namespace ada::graph
