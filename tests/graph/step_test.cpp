// Whole steps on the symbolic backend against the reference: dataflow, memory, scales, moments and
// the lists of roundings and decisions, fused and not.
#include <doctest/doctest.h>

#include "graph/fake_backend.h"
#include "graph/graph.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"
#include "graph/precisions.h"
#include "graph/reference.h"

namespace ada::graph::test {
namespace {

using scaling::LayerMethod;

struct Variant {
  std::string name;
  bool fuse;
  std::function<bool(const backend::BatchNormSpec&)> declines;
  std::function<bool(const backend::MatmulSpec&)> declines_consumer = [](const auto&) {
    return false;
  };
  bool recompute = true;
};

std::vector<Variant> Variants() {
  const auto never = [](const backend::BatchNormSpec&) { return false; };
  return {
      {"fused", true, never},
      {"unfused", false, never},
      {"all declined", true, [](const backend::BatchNormSpec&) { return true; }},
      {"addends declined", true, [](const auto& s) { return static_cast<bool>(s.addend); }},
      {"relu declined", true, [](const auto& s) { return s.relu && !s.addend; }},
      {"nothing recomputed", true, never, {}, false},
      {"recomputed declined", true, [](const auto& s) { return static_cast<bool>(s.recomputed); }},
      {"readers declined", true, never, [](const auto&) { return true; }},
      {"readers of relus declined", true, never, [](const auto& s) { return s.recomputed.relu; }},
      {"every other declined", true,
       [](const auto& s) { return s.recomputed && s.x.shape.c % 32 == 0; },
       [](const auto& s) { return s.x.shape.h % 8 == 0; }}};
}

// Layers under four kinds of rule, told apart by their names; alpha differs from layer to layer.
scaling::LayerRule MixedRule(const ScalerRequest& request) {
  scaling::LayerRule rule;
  const Symbol symbol = Hash(request.layer, {});
  rule.method = symbol % 4 == 0   ? LayerMethod::kPass
                : symbol % 4 == 1 ? LayerMethod::kFixed
                : symbol % 4 == 2 ? LayerMethod::kState
                                  : LayerMethod::kApproxRange;
  rule.has_weight = request.has_weight;
  rule.fixed_scale = static_cast<double>(1 << symbol % 5) / 2;
  return rule;
}
scaling::LayerRule PassRule(const ScalerRequest&) { return {}; }

struct Policy {
  std::string name;
  RuleFor rule_for;
  bool scales_batch_norms = false;
};
struct NamedPrecision {
  std::string name;
  Precision precision;
};
const std::vector<NamedPrecision> kPrecisions = {{"fp16", Uniform(kFp16)},
                                                 {"fp32", Uniform(kFp32)},
                                                 {"patchwork", Patchwork()},
                                                 {"hybrid fp8", HybridFp8()}};

std::string DecisionName(const ScalePoint& point) {
  return (point.scaler ? "" : "branch ") + point.layer;
}

void CheckStep(Graph& graph, FakeBackend& backend, const Reference& expected) {
  graph.Forward({});
  graph.Backward({});
  CHECK(backend.logits == expected.logits);
  for (const Parameter& parameter : graph.parameters()) {
    if (!parameter.gradient) continue;
    INFO(parameter.name);
    CHECK(Read(parameter.gradient) == expected.gradients.at(parameter.name));
  }
  for (const RoundingPoint& point : graph.roundings()) {
    if (point.layer == "input") continue;  // the images, which the reference is given
    const std::string key = point.layer + " " + point.tensor;
    INFO(key);
    CHECK(point.stats->mean == static_cast<double>(expected.symbols.at(key)));
    CHECK((point.scale ? *point.scale : 1) == expected.scales.at(key));
  }
}

void CheckLists(const Graph& graph, const Reference& expected) {
  std::vector<std::pair<std::string, std::string>> roundings;
  std::vector<std::string> decisions;
  for (const RoundingPoint& point : graph.roundings()) {
    if (point.layer == "input") continue;
    roundings.emplace_back(point.layer, point.tensor);
  }
  for (const ScalePoint& point : graph.scales()) decisions.push_back(DecisionName(point));
  CHECK(decisions == expected.decisions);
  CHECK(roundings == expected.roundings);
}

void FillMasters(Graph& graph) {
  for (const Parameter& parameter : graph.parameters()) {
    Write(parameter.value, Hash(parameter.name, {}));
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("a step computes what the layers say, whatever is fused and shared") {
    const std::vector<Policy> policies = {
        {"pass", PassRule}, {"mixed", MixedRule}, {"batch norms too", MixedRule, true}};
    for (const TestNetwork& network : AllNetworks()) {
      for (const Policy& policy : policies) {
        const Network resolved = Resolve(network.model, network.input, network.task);
        const Reference expected =
            ReferenceOf(resolved, policy.rule_for, policy.scales_batch_norms);
        for (const Variant& variant : Variants()) {
          for (const NamedPrecision& rounding : kPrecisions) {
            CAPTURE(network.name);
            CAPTURE(policy.name);
            CAPTURE(variant.name);
            CAPTURE(rounding.name);
            FakeBackend backend;
            backend.declines = variant.declines;
            backend.declines_consumer = variant.declines_consumer;
            GraphSpec spec;
            spec.model = &network.model;
            spec.precision = rounding.precision;
            spec.input = network.input;
            spec.task = network.task;
            spec.fuse = variant.fuse;
            spec.recompute = variant.recompute;
            spec.rule_for = policy.rule_for;
            spec.scales_batch_norms = policy.scales_batch_norms;
            const auto graph = Graph::Build(spec, backend);
            FillMasters(*graph);
            CheckLists(*graph, expected);
            CheckStep(*graph, backend, expected);
            CheckStep(*graph, backend, expected);  // and again over the old memory
          }
        }
      }
    }
  }

  TEST_CASE("the evaluation graph shares parameters, reuses memory and counts nothing") {
    for (const TestNetwork& network : AllNetworks()) {
      CAPTURE(network.name);
      FakeBackend training_backend, backend;
      GraphSpec spec;
      spec.model = &network.model;
      spec.precision = Uniform(kFp16);
      spec.input = network.input;
      spec.task = network.task;
      const auto training = Graph::Build(spec, training_backend);
      FillMasters(*training);
      spec.training = false;
      const auto graph = Graph::Build(spec, backend, training.get());
      const Network resolved = Resolve(network.model, network.input, network.task);
      graph->Forward({});
      CHECK(backend.logits == ReferenceOf(resolved, PassRule).logits);
      CHECK(graph->roundings().empty());
      CHECK(graph->scales().empty());
      CHECK(graph->parameters().size() == training->parameters().size());
      for (std::size_t i = 0; i < graph->parameters().size(); ++i) {
        CHECK(graph->parameters()[i].value.data == training->parameters()[i].value.data);
        CHECK_FALSE(graph->parameters()[i].gradient);
      }
      CHECK(backend.allocations[0] < training_backend.allocated_bytes() / 2);
    }
  }
}

}  // namespace
}  // namespace ada::graph::test
