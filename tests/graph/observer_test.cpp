// What a watcher is shown: every tensor at a time when it holds what it should, under names and
// scales of the logs.
#include <doctest/doctest.h>

#include <map>
#include <set>

#include "graph/fake_backend.h"
#include "graph/graph.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"
#include "graph/precisions.h"
#include "graph/reference.h"

namespace ada::graph::test {
namespace {

using Name = std::pair<std::string, std::string>;

class Recording : public TensorObserver {
 public:
  void Observe(const ObservedTensor& seen, const backend::Pass&) override {
    const Name name = {seen.layer, seen.tensor};
    twice |= symbols.contains(name);
    symbols[name] = test::Read(seen.value);
    scales[name] = seen.scale ? *seen.scale : 1;
    if (seen.rounded) rounded.insert(name);
  }
  std::map<Name, Symbol> symbols;
  std::map<Name, float> scales;
  std::set<Name> rounded;
  bool twice = false;
};

scaling::LayerRule FixedRule(const ScalerRequest& request) {
  scaling::LayerRule rule;
  rule.method = scaling::LayerMethod::kFixed;
  rule.fixed_scale = static_cast<double>(1 << Hash(request.layer, {}) % 5) / 2;
  rule.has_weight = request.has_weight;
  return rule;
}

Recording Watch(const TestNetwork& network, bool fuse, std::set<Name>* roundings = nullptr,
                bool recompute = false) {
  FakeBackend backend;
  GraphSpec spec;
  spec.model = &network.model;
  spec.precision = Uniform(kFp16);
  spec.input = network.input;
  spec.task = network.task;
  spec.fuse = fuse;
  spec.recompute = recompute;
  spec.rule_for = FixedRule;
  const auto graph = Graph::Build(spec, backend);
  for (const Parameter& p : graph->parameters()) Write(p.value, Hash(p.name, {}));
  Recording recording;
  graph->Forward({}, &recording);
  graph->Backward({}, &recording);
  if (roundings)
    for (const RoundingPoint& p : graph->roundings())
      if (p.tensor != "w" && p.tensor != "dw" && p.layer != "input")
        roundings->insert({p.layer, p.tensor});
  return recording;
}

TEST_SUITE("cpu") {
  TEST_CASE("without fusion every rounded activation and gradient is shown once, as it is logged") {
    for (const TestNetwork& network : AllNetworks()) {
      CAPTURE(network.name);
      const Network resolved = Resolve(network.model, network.input, network.task);
      const Reference expected = ReferenceOf(resolved, FixedRule);
      std::set<Name> roundings;
      const Recording seen = Watch(network, /*fuse=*/false, &roundings);
      CHECK(!seen.twice);
      CHECK(seen.rounded == roundings);
      for (const Name& name : seen.rounded) {
        const std::string key = name.first + " " + name.second;
        CAPTURE(key);
        CHECK(seen.symbols.at(name) == expected.symbols.at(key));
        CHECK(seen.scales.at(name) == expected.scales.at(key));
      }
      for (const Node& node : resolved.nodes) {
        CAPTURE(node.config.name);
        CHECK(seen.symbols.contains({node.config.name, "y"}));
        CHECK(seen.symbols.contains({node.config.name, "x"}) == !node.kind->joins);
      }
    }
  }

  TEST_CASE("what fused ops show is the same") {
    for (const TestNetwork& network : AllNetworks()) {
      CAPTURE(network.name);
      const Recording plain = Watch(network, false), fused = Watch(network, true);
      CHECK(!fused.twice);
      for (const auto& [name, symbol] : fused.symbols) {
        CAPTURE(name.first);
        CAPTURE(name.second);
        CHECK(plain.symbols.at(name) == symbol);
        CHECK(plain.scales.at(name) == fused.scales.at(name));
        if (fused.rounded.contains(name)) CHECK(plain.rounded.contains(name));
      }
      for (const Name& name : plain.rounded)  // gradients that are rounded are always stored
        if (name.second != "y") CHECK(fused.rounded.contains(name));
    }
  }

  TEST_CASE("what deferring graphs show is the same: neither what is not stored nor its gradient") {
    for (const TestNetwork& network : AllNetworks()) {
      CAPTURE(network.name);
      const Recording stored = Watch(network, true);
      const Recording deferring = Watch(network, true, nullptr, /*recompute=*/true);
      CHECK(!deferring.twice);
      for (const auto& [name, symbol] : deferring.symbols) {
        CAPTURE(name.first);
        CAPTURE(name.second);
        CHECK(stored.symbols.at(name) == symbol);
      }
    }
    const TestNetwork resnet = {"resnet20", Zoo("resnet20"), {5, 32, 32, 3}};
    const Recording seen = Watch(resnet, true, nullptr, true);
    CHECK_FALSE(seen.symbols.contains({"stage1.block1.relu1", "y"}));
    CHECK_FALSE(seen.symbols.contains({"stage1.block1.conv2", "x"}));
    CHECK_FALSE(seen.symbols.contains({"stage1.block1.conv2", "dx"}));
    CHECK(seen.symbols.contains({"stage1.block1.conv2", "dy"}));
    CHECK(seen.symbols.contains({"stage1.block1.conv1", "dx"}));
    CHECK(seen.symbols.contains({"stage1.block1.relu2", "y"}));
  }
}

}  // namespace
}  // namespace ada::graph::test
