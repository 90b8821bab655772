// See builder.h.
#include "graph/builder.h"

#include "core/error.h"
#include "graph/fusion.h"
#include "graph/memory_plan.h"

namespace ada::graph {
namespace {

// Shape of a vector parameter of c values.
Shape VectorShape(std::int64_t c) { return {1, 1, 1, c}; }

ScalerRequest RequestFor(const Node& node, const NumberFormat& format) {
  const config::LayerConfig& layer = node.config;
  double fan = layer.features, shared = 1;
  if (node.kind == Kind::kConv2d) {
    fan = static_cast<double>(layer.channels) * layer.kernel[0] * layer.kernel[1];
    shared = static_cast<double>(layer.stride[0]) * layer.stride[1] * layer.groups;
  }
  return {layer.name, fan, fan / shared, format};
}

}  // namespace

Builder::Builder(const GraphSpec& spec, backend::Backend& backend, const Graph* share)
    : spec_(spec), backend_(backend), share_(share), graph_(new Graph) {}

std::unique_ptr<Graph> Builder::Build() {
  ADA_CHECK(spec_.model != nullptr && spec_.input.n >= 1);
  network_ = Resolve(*spec_.model, spec_.input);
  graph_->stats_.resize(network_.nodes.size() + 1);
  bindings_.network = &network_;
  bindings_.plan = &plan_;
  bindings_.images = spec_.input.n;
  bindings_.format = spec_.format;
  bindings_.training = spec_.training;
  bindings_.parameters = &graph_->parameters_;
  bindings_.stats = &graph_->stats_;
  bindings_.scalers = &graph_->scalers_;
  bindings_.decisions = &graph_->decisions_;
  bindings_.moments = &graph_->moments_;
  AddLayerRows();
  AddParameters();
  AskRules();
  AddChannelMoments();
  while (!MakeOps()) {
  }
  if (spec_.training) {
    ListRoundings();
    ListScales();
  }
  return std::move(graph_);
}

void Builder::AddLayerRows() {
  for (const Node& node : network_.nodes) {
    graph_->layers_.push_back({node.config.name, node.config.kind, node.output, node.parameters,
                               node.mflop, spec_.format, node.is_product()});
  }
}

void Builder::AddParameter(const std::string& name, std::vector<std::int64_t> dims,
                           const Shape& shape, bool trained) {
  Parameter parameter{name, std::move(dims), {}, {}};
  parameter.value.shape = shape;
  if (share_) {
    const std::vector<Parameter>& others = share_->parameters();
    const std::size_t index = graph_->parameters_.size();
    ADA_CHECK(index < others.size() && others[index].name == name &&
              others[index].dims == parameter.dims);
    parameter.value = others[index].value;
  } else {
    parameter.value.data = backend_.Allocate(parameter.value.bytes());
  }
  if (trained && spec_.training) {
    parameter.gradient = parameter.value;
    parameter.gradient.data = backend_.Allocate(parameter.gradient.bytes());
  }
  graph_->parameters_.push_back(std::move(parameter));
}

void Builder::AddParameters() {
  for (const Node& node : network_.nodes) {
    const config::LayerConfig& layer = node.config;
    bindings_.first_parameter.push_back(static_cast<int>(graph_->parameters_.size()));
    const std::int64_t out = node.output.c;
    if (node.kind == Kind::kConv2d) {
      const std::int64_t in = node.input.c / layer.groups;
      AddParameter(layer.name + ".weight", {out, in, layer.kernel[0], layer.kernel[1]},
                   {out, layer.kernel[0], layer.kernel[1], in}, true);
    } else if (node.kind == Kind::kLinear) {
      AddParameter(layer.name + ".weight", {out, node.input.numel()},
                   {out, node.input.h, node.input.w, node.input.c}, true);
    } else if (node.kind == Kind::kBatchNorm) {
      AddParameter(layer.name + ".weight", {out}, VectorShape(out), true);
      AddParameter(layer.name + ".bias", {out}, VectorShape(out), true);
      AddParameter(layer.name + ".running_mean", {out}, VectorShape(out), false);
      AddParameter(layer.name + ".running_var", {out}, VectorShape(out), false);
    }
    if (node.is_product() && layer.bias) {
      AddParameter(layer.name + ".bias", {out}, VectorShape(out), true);
    }
  }
}

void Builder::AskRules() {
  const std::vector<bool> needs = network_.NeedsGradient();
  graph_->scalers_.resize(network_.nodes.size());
  for (std::size_t i = 0; i < network_.nodes.size(); ++i) {
    const Node& node = network_.nodes[i];
    scaling::LayerRule& rule = graph_->scalers_[i].rule;
    if (spec_.training && spec_.rule_for && node.is_product() && needs[node.inputs[0]]) {
      rule = spec_.rule_for(RequestFor(node, spec_.format));
      ADA_CHECK(spec_.adaptive || rule.method != scaling::LayerMethod::kApproxRange);
    }
    methods_.push_back(rule.method);
  }
}

// A convolution whose output only a batch norm reads hands over the sums that the batch norm needs.
void Builder::AddChannelMoments() {
  bindings_.channel_moments.resize(network_.nodes.size());
  if (!spec_.fuse || !spec_.training) return;
  const auto consumers = network_.Consumers();
  for (std::size_t i = 0; i < network_.nodes.size(); ++i) {
    const std::vector<int>& readers = consumers[i + 1];
    if (network_.nodes[i].kind != Kind::kConv2d || readers.size() != 1 ||
        network_.nodes[readers[0]].kind != Kind::kBatchNorm) {
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

bool Builder::MakeOps() {
  PlanSpec plan_spec;
  plan_spec.images = spec_.input.n;
  plan_spec.element_bytes = BytesOf(StorageFor(spec_.format));
  plan_spec.training = spec_.training;
  if (spec_.fuse) plan_spec.chains = FindChains(network_, declined_);
  plan_spec.methods = methods_;
  plan_ = MakePlan(network_, plan_spec);
  Allocate();
  OpMaker maker(bindings_, backend_);
  return MakePlannedOps(maker);
}

void Builder::Allocate() {
  const MemoryPlan memory = PlanMemory(plan_.buffers);
  if (memory.total > block_bytes_) {
    bindings_.block = backend_.Allocate(memory.total);
    block_bytes_ = memory.total;
  }
  bindings_.offsets = memory.offsets;
  if (plan_.scales > 0) {
    bindings_.scales = reinterpret_cast<float*>(backend_.Allocate(plan_.scales * sizeof(float)));
  }
  graph_->moments_.assign(plan_.gradients.size(), {});
  graph_->decisions_.assign(plan_.branches.size(), {});
}

bool Builder::MakePlannedOps(OpMaker& maker) {
  graph_->ops_.clear();
  graph_->forward_.clear();
  graph_->backward_.clear();
  for (const OpPlan& op : plan_.ops) {
    graph_->ops_.push_back(maker.Make(op));
    graph_->forward_.push_back(graph_->ops_.back().get());
    if (graph_->ops_.back()) continue;
    ADA_CHECK(op.last() != op.node);  // only a chain may be declined
    declined_.insert(op.node);
  }
  for (const OpPlan& op : plan_.ops) {
    if (declined_.count(op.node) && op.last() != op.node) return false;
  }
  for (const BackwardStep& step : plan_.backward) {
    if (step.op >= 0) {
      graph_->backward_.push_back(graph_->forward_[step.op]);
    } else {
      graph_->ops_.push_back(maker.MakeBranchSum(step.branch));
      graph_->backward_.push_back(graph_->ops_.back().get());
    }
  }
  graph_->loss_ = maker.MakeLoss(spec_.label_smoothing);
  Tensor images;  // fp32, beside the plan: filled before the pass begins
  images.shape = spec_.input;
  images.data = backend_.Allocate(images.bytes());
  graph_->input_ = backend_.MakeInput({images, bindings_.Value(0)});
  return true;
}

const OpPlan* Builder::OpOf(int node) const {
  return op_of_[node] < 0 ? nullptr : &plan_.ops[op_of_[node]];
}

// In the order of the unfused execution, whatever is fused.
void Builder::ListRoundings() {
  const int nodes = static_cast<int>(network_.nodes.size());
  op_of_.assign(nodes, -1);
  branch_of_.assign(nodes, -1);
  for (std::size_t i = 0; i < plan_.ops.size(); ++i) op_of_[plan_.ops[i].node] = i;
  for (std::size_t i = 0; i < plan_.branches.size(); ++i) {
    branch_of_[plan_.branches[i].value - 1] = i;
  }
  std::vector<RoundingPoint>& list = graph_->roundings_;
  for (int i = 0; i < nodes; ++i) {
    const Node& node = network_.nodes[i];
    const LayerStats& stats = graph_->stats_[i + 1];
    const std::string& name = node.config.name;
    if (node.is_product()) list.push_back({name, "w", spec_.format, &stats.w, nullptr});
    if (node.rounds_output()) list.push_back({name, "y", spec_.format, &stats.y, nullptr});
  }
  list.push_back(
      {"loss", "dx", spec_.format, &graph_->stats_[0].dx, bindings_.ScaleOf(plan_.loss_gradient)});
  for (int i = nodes - 1; i >= 0; --i) {
    const Node& node = network_.nodes[i];
    const LayerStats& stats = graph_->stats_[i + 1];
    const std::string& name = node.config.name;
    if (branch_of_[i] >= 0) {
      const int sum = plan_.branches[branch_of_[i]].sum;
      list.push_back({name, "dy", spec_.format, &stats.dy, bindings_.ScaleOf(sum)});
    }
    if (node.is_product()) list.push_back({name, "dw", kFp32, &stats.dw, nullptr});
    const OpPlan* op = OpOf(i);
    if (!op || op->dx < 0 || !plan_.gradients[op->dx].rounds) continue;
    list.push_back({name, "dx", spec_.format, &stats.dx, bindings_.ScaleOf(op->dx)});
  }
}

void Builder::ListScales() {
  for (int i = static_cast<int>(network_.nodes.size()) - 1; i >= 0; --i) {
    const Node& node = network_.nodes[i];
    if (branch_of_[i] >= 0) {
      graph_->scales_.push_back({node.config.name, &graph_->decisions_[branch_of_[i]], nullptr});
    }
    const OpPlan* op = OpOf(i);
    if (!node.is_product() || op->dx < 0) continue;
    scaling::LayerScaler& scaler = graph_->scalers_[i];
    graph_->scales_.push_back({node.config.name, &scaler.decision, &scaler});
  }
}

}  // namespace ada::graph
