// Promise 3 of the design on the CPU backend: fused and unfused graphs round at the same places and
// agree bit for bit in gradients, running statistics, counts and scales.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "graph/graph.h"
#include "graph/networks.h"
#include "graph/plan/plan.h"
#include "graph/precisions.h"
#include "number/random.h"

namespace ada::graph::test {
namespace {

using scaling::LayerMethod;

// A quarter of the layers under each method, told apart by their names.
scaling::LayerRule MixedRule(const ScalerRequest& request) {
  scaling::LayerRule rule;
  const std::uint64_t id = StreamId(request.layer);
  rule.method = id % 4 == 0   ? LayerMethod::kPass
                : id % 4 == 1 ? LayerMethod::kFixed
                : id % 4 == 2 ? LayerMethod::kExactRange
                              : LayerMethod::kApproxRange;
  rule.has_weight = request.has_weight;
  rule.fixed_scale = 4;
  rule.u_min = request.gradient_format.smallest_subnormal();
  rule.u_max = request.gradient_format.largest();
  rule.fan = request.fan_exact;
  return rule;
}

// The second step is a later micro-batch of fewer rows.
backend::Pass PassOf(const TestNetwork& network, int step) {
  backend::Pass pass;
  pass.rows = static_cast<int>(network.input.n) - (step == 2 ? 2 : 0);
  pass.accumulate = step == 2;
  pass.count = true;
  pass.loss_terms = network.input.n;
  pass.loss_scale = 8;
  pass.draw = static_cast<std::uint64_t>(step);
  return pass;
}

struct Run {
  std::unique_ptr<backend::Backend> backend = backend::cpu::MakeCpuBackend(2);
  std::unique_ptr<Graph> graph;
  double loss = 0;

  Run(const TestNetwork& network, const Precision& precision, bool fuse, bool recompute = true,
      bool scales_batch_norms = false) {
    GraphSpec spec;
    spec.model = &network.model;
    spec.precision = precision;
    spec.input = network.input;
    spec.task = network.task;
    spec.fuse = fuse;
    spec.recompute = recompute;
    spec.rule_for = MixedRule;
    spec.scales_batch_norms = scales_batch_norms;
    graph = Graph::Build(spec, *backend);
    Initialize(*graph, {}, 1, *backend);
    graph->RefreshWeights(PassOf(network, 0));
  }
  void Step(const TestNetwork& network, int step) {
    RandomStream random(2, static_cast<std::uint64_t>(step));
    const int rows = static_cast<int>(network.input.n);
    std::vector<float> images(static_cast<std::size_t>(network.input.numel()));
    const Shape& output = graph->outputs()[0].shape;
    std::vector<std::int32_t> labels(static_cast<std::size_t>(rows * output.h * output.w));
    for (float& value : images) value = static_cast<float>(random.Normal());
    for (std::int32_t& label : labels)
      label = static_cast<std::int32_t>(random.Below(static_cast<std::uint32_t>(graph->classes())));
    backend::Pass pass = PassOf(network, step);
    pass.loss_terms *= output.h * output.w;
    std::vector<float> locations(4 * labels.size());
    for (float& value : locations) value = static_cast<float>(random.Normal());
    graph->SetBatch(images.data(), {.labels = labels.data(), .locations = locations.data()},
                    pass.rows);
    graph->Forward(pass);
    graph->Backward(pass);
    loss = graph->Result().loss_sum;
    for (const ScaledTensor& tensor : graph->scaled_tensors()) {
      scaling::TensorScaler& per_tensor_scale = *tensor.scale->per_tensor_scale.host;
      scaling::UpdateTensorScale(tensor.scale->history, tensor.stats->max_abs, per_tensor_scale);
    }
    graph->RefreshWeights(PassOf(network, step + 1));
  }
};

std::map<std::string, Precision> Precisions() {
  std::map<std::string, Precision> all = {{"fp16", Uniform(kFp16)},
                                          {"bf16", Uniform(kBf16)},
                                          {"fp32", Uniform(kFp32)},
                                          {"patchwork", Patchwork()},
                                          {"hybrid fp8", HybridFp8()}};
  all["stochastic patchwork"] = Patchwork();
  all["stochastic patchwork"].stochastic = true;
  return all;
}

bool SameBytes(const Tensor& a, const Tensor& b) {
  return a.bytes() == b.bytes() && std::memcmp(a.data, b.data, a.bytes()) == 0;
}

// Counts and extremes equal; sums, whose lanes may be merged in another order, to 12 digits.
void CheckStats(const TensorStats& a, const TensorStats& b) {
  CHECK(a.numel > 0);
  CHECK(a.numel == b.numel);
  CHECK(a.zeros_before == b.zeros_before);
  CHECK(a.zeros_after == b.zeros_after);
  CHECK(a.underflow == b.underflow);
  CHECK(a.subnormal == b.subnormal);
  CHECK(a.overflow == b.overflow);
  CHECK(a.min_abs == b.min_abs);
  CHECK(a.max_abs == b.max_abs);
  CHECK(std::abs(a.mean - b.mean) <= 1e-12 * a.std);
  CHECK(a.std == doctest::Approx(b.std).epsilon(1e-12));
  CHECK(a.l1 == doctest::Approx(b.l1).epsilon(1e-12));
  CHECK(a.l2 == doctest::Approx(b.l2).epsilon(1e-12));
}

void CheckEqual(Graph& fused, Graph& parts) {
  REQUIRE(fused.parameters().size() == parts.parameters().size());
  for (std::size_t i = 0; i < fused.parameters().size(); ++i) {
    const Parameter &a = fused.parameters()[i], &b = parts.parameters()[i];
    INFO(a.name);
    CHECK(SameBytes(a.value, b.value));
    if (a.gradient) CHECK(SameBytes(a.gradient, b.gradient));
  }
  REQUIRE(fused.roundings().size() == parts.roundings().size());
  for (std::size_t i = 0; i < fused.roundings().size(); ++i) {
    const RoundingPoint &a = fused.roundings()[i], &b = parts.roundings()[i];
    INFO(a.layer << " " << a.tensor);
    CheckStats(*a.stats, *b.stats);
    if (a.scale) CHECK(*a.scale == *b.scale);
    REQUIRE((a.per_tensor_scale != nullptr) == (b.per_tensor_scale != nullptr));
    if (a.per_tensor_scale) CHECK(a.per_tensor_scale->scale == b.per_tensor_scale->scale);
  }
  REQUIRE(fused.scales().size() == parts.scales().size());
  for (std::size_t i = 0; i < fused.scales().size(); ++i) {
    INFO(fused.scales()[i].layer);
    CHECK(fused.scales()[i].decision->scale_out == parts.scales()[i].decision->scale_out);
    CHECK(fused.scales()[i].decision->alpha == parts.scales()[i].decision->alpha);
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("fused and unfused agree bit for bit, with what nobody stores and without") {
    for (const TestNetwork& network : AllNetworks()) {
      for (const auto& [name, precision] : Precisions()) {
        const bool large = network.name.starts_with("vgg") || network.name == "mlp";
        if (large && name != "fp16") continue;
        CAPTURE(network.name);
        CAPTURE(name);
        Run fused(network, precision, true), parts(network, precision, false);
        Run stored(network, precision, true, /*recompute=*/false);
        for (const int step : {1, 2}) {
          fused.Step(network, step);
          parts.Step(network, step);
          stored.Step(network, step);
          CHECK(fused.loss == parts.loss);
          CHECK(stored.loss == parts.loss);
          CHECK(fused.loss > 0);
          CheckEqual(*fused.graph, *parts.graph);
          CheckEqual(*stored.graph, *parts.graph);
        }
      }
    }
  }

  TEST_CASE("so they do where batch norms choose scales") {
    for (const TestNetwork& network : AllNetworks())
      for (const NumberFormat& format : {kFp16, kFp8E5M2}) {
        if (network.name.starts_with("vgg") || network.name == "mlp") continue;
        CAPTURE(network.name);
        const Precision precision = Uniform(format);
        Run fused(network, precision, true, true, true),
            parts(network, precision, false, false, true);
        Run stored(network, precision, true, false, true);
        for (const int step : {1, 2}) {
          for (Run* run : {&fused, &parts, &stored}) run->Step(network, step);
          CHECK(fused.loss == parts.loss);
          CHECK(stored.loss == parts.loss);
          CheckEqual(*fused.graph, *parts.graph);
          CheckEqual(*stored.graph, *parts.graph);
        }
      }
  }

  TEST_CASE("what nobody stores takes no memory") {
    TestNetwork network = {"resnet20", Zoo("resnet20"), {64, 32, 32, 3}};
    const Run fused(network, Uniform(kFp16), true), stored(network, Uniform(kFp16), true, false);
    // The inner batch norms of nine blocks in fp16.
    const std::size_t values = 3 * (32 * 32 * 16 + 16 * 16 * 32 + 8 * 8 * 64);
    const std::size_t saved = stored.backend->allocated_bytes() - fused.backend->allocated_bytes();
    CHECK(saved > 64 * 2 * values * 9 / 10);
  }
}

}  // namespace
}  // namespace ada::graph::test
