// Whole training steps of small networks on any backend, and what came of them: losses, norms,
// scales, counts. Works where backend memory is not the host's.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "graph/graph.h"
#include "graph/networks.h"
#include "graph/precisions.h"
#include "number/random.h"
#include "optim/optimizer.h"

namespace ada::backend::test {

// How a network is trained in a test.
struct Training {
  std::string name;
  graph::Precision precision;
  scaling::LayerMethod method = scaling::LayerMethod::kPass;
  bool power_of_two = true, reference = false;
  float init_scale = 8;
  bool fuse = true;
  UpdateRule::Kind update = UpdateRule::Kind::kSgd;
  double clip_norm = 0;
  bool scales_batch_norms = false;
};

inline graph::GraphSpec SpecOf(const graph::test::TestNetwork& network, const Training& training) {
  graph::GraphSpec spec;
  spec.model = &network.model;
  spec.precision = training.precision;
  spec.input = network.input;
  spec.fuse = training.fuse;
  spec.reference = training.reference;
  spec.scales_batch_norms = training.scales_batch_norms;
  spec.histograms = {"y", "w", "dx", "dw", "dy"};
  spec.rule_for = [training](const graph::ScalerRequest& request) {
    scaling::LayerRule rule;
    rule.method = training.method;
    rule.fixed_scale = 2;
    rule.has_weight = request.has_weight;
    rule.power_of_two = training.power_of_two;
    rule.reference = training.reference;
    rule.fp16_gradients = request.dy_format == kFp16;
    rule.u_min = request.gradient_format.smallest_subnormal();
    rule.u_max = request.gradient_format.largest();
    rule.fan = training.reference ? request.fan_reference : request.fan_exact;
    return rule;
  };
  return spec;
}

// One network on one backend, trained on random images in two micro-batches a step.
class NetworkSteps {
 public:
  NetworkSteps(const graph::test::TestNetwork& network, const Training& training, Backend& backend)
      : training_(training),
        rows_{static_cast<int>(network.input.n), static_cast<int>(network.input.n / 2 + 1)},
        graph_(graph::Graph::Build(SpecOf(network, training), backend)),
        optimizer_(backend, RuleOf(training), Trained(*graph_), training.clip_norm) {
    RandomStream random(7, StreamId("batch"));
    images_.resize(static_cast<std::size_t>(network.input.numel()));
    for (float& v : images_) v = static_cast<float>(random.Normal());
    for (int i = 0; i < rows_[0]; ++i)
      labels_.push_back(
          static_cast<std::int32_t>(random.Below(static_cast<std::uint32_t>(graph_->classes()))));
    graph::Initialize(*graph_, network.model.init, 1, backend);
  }

  // Every other step counts everything.
  void Step() { Step(step_ % 2 == 0); }
  void Step(bool counts) {
    Pass pass;
    pass.loss_terms = rows_[0] + rows_[1];
    pass.loss_scale = training_.init_scale;
    pass.edge = 0.5, pass.seed = 3;
    pass.count = pass.bins = counts;
    UpdatePlan plan;
    plan.step.lr = 0.05;
    optimizer_.Plan(plan);
    for (const int part : {0, 1}) {
      pass.rows = rows_[part], pass.accumulate = part > 0;
      pass.draw = static_cast<std::uint64_t>(2 * step_ + part);
      graph_->SetBatch(images_.data(), labels_.data(), pass.rows);
      // As the trainer does: the update goes with the last backward pass.
      graph::Graph::MicroBatch batch;
      batch.refreshes = part == 0;
      if (part == 1) batch.update = {0, [this] { optimizer_.Update(); }};
      graph_->RunMicroBatch(pass, batch);
    }
    losses_.push_back(graph_->Result().loss_sum);
    graph_->Collect(pass);
    norms_.push_back(optimizer_.Outcome().norm);
    ++step_;
  }

  const graph::Graph& graph() const { return *graph_; }
  const std::vector<double>& losses() const { return losses_; }
  const std::vector<double>& norms() const { return norms_; }

 private:
  static UpdateRule RuleOf(const Training& training) {
    UpdateRule rule;
    rule.kind = training.update, rule.momentum = 0.9, rule.weight_decay = 1e-4;
    return rule;
  }
  static std::vector<optim::OptimizedParameter> Trained(const graph::Graph& graph) {
    std::vector<optim::OptimizedParameter> trained;
    for (const graph::Parameter& p : graph.parameters())
      if (p.gradient) trained.push_back({p.name, p.value, p.gradient, true});
    return trained;
  }

  const Training training_;
  const int rows_[2];
  std::unique_ptr<graph::Graph> graph_;
  optim::Optimizer optimizer_;
  std::vector<float> images_;
  std::vector<std::int32_t> labels_;
  int step_ = 0;
  std::vector<double> losses_, norms_;
};

// Formats, rules and ways of updating, each at least once.
inline std::vector<Training> AllTrainings() {
  using graph::test::Uniform;
  using scaling::LayerMethod;
  graph::Precision stochastic = Uniform(kFp16);
  stochastic.stochastic = true;
  std::vector<Training> all = {
      {"fp32", Uniform(kFp32), LayerMethod::kPass},
      {"fp16, fixed", Uniform(kFp16), LayerMethod::kFixed},
      {"fp16, approx_range", Uniform(kFp16), LayerMethod::kApproxRange},
      {"bf16, lognormal", Uniform(kBf16), LayerMethod::kLognormal},
      {"fp16, abs_range", Uniform(kFp16), LayerMethod::kAbsRange},
      {"fp16, element_wise_range", Uniform(kFp16), LayerMethod::kElementWiseRange},
      {"fp16, exact_range", Uniform(kFp16), LayerMethod::kExactRange},
      {"fp8_e5m2, state", Uniform(kFp8E5M2), LayerMethod::kState},
      {"patchwork", graph::test::Patchwork(), LayerMethod::kApproxRange},
      {"hybrid fp8", graph::test::HybridFp8(), LayerMethod::kPass},
      {"stochastic", stochastic, LayerMethod::kFixed}};
  Training reference = all[2], unfused = all[2], adam = all[0], clipped = all[1];
  reference.name = "reference", reference.reference = true;
  reference.precision.base.weight_gradients = kFp16;
  unfused.name = "unfused", unfused.fuse = false, unfused.power_of_two = false;
  adam.name = "adam", adam.update = UpdateRule::Kind::kAdamW;
  clipped.name = "clipped", clipped.clip_norm = 0.01;
  Training norms = all[2], exact_norms = all[6];
  norms.name = "batch norms", exact_norms.name = "batch norms, exact_range";
  norms.scales_batch_norms = exact_norms.scales_batch_norms = true;
  for (const Training& more : {reference, unfused, adam, clipped, norms, exact_norms})
    all.push_back(more);
  return all;
}

}  // namespace ada::backend::test
