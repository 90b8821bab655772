// Batch norms that are never stored: which ones, what the two ops are given, which memory is saved,
// and what is asked for after a refusal. What they compute: step_test.cpp.
#include <doctest/doctest.h>

#include <set>

#include "graph/build_training.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"
#include "graph/plan/plan.h"

namespace ada::graph::test {
namespace {

using Names = std::vector<std::string>;

struct Planned {
  Planned(const config::ModelConfig& model, const Shape& input, bool training,
          const FusionLimits& limits = {})
      : network(Resolve(model, input)),
        chains(FindChains(network, limits)),
        storage(ResolveStorage(network, Uniform(kFp16))) {
    PlanSpec spec;
    spec.images = input.n;
    spec.storage = &storage;
    spec.training = training;
    spec.chains = chains;
    spec.rules.resize(network.nodes.size());
    plan = MakePlan(network, spec);
  }
  int NodeOf(const std::string& name) const {
    for (std::size_t i = 0; i < network.nodes.size(); ++i)
      if (network.nodes[i].config.name == name) return static_cast<int>(i);
    FAIL("no layer " << name);
    return -1;
  }
  const BufferLife& LifeOf(const std::string& layer) const {
    return plan.buffers[plan.value_buffers[NodeOf(layer) + 1]];
  }
  bool IsStored(const std::string& layer) const {
    return plan.value_buffers[NodeOf(layer) + 1] >= 0;
  }
  // "batch norm>consumer" of each chain that has one.
  Names Readers() const {
    Names names;
    for (const Chain& chain : chains)
      if (chain.consumer >= 0)
        names.push_back(network.nodes[chain.batch_norm].config.name + ">" +
                        network.nodes[chain.consumer].config.name);
    return names;
  }

  Network network;
  std::vector<Chain> chains;
  NetworkStorage storage;
  Plan plan;
};

// Every case of a chain's end: read by a convolution without and with relu, by two layers, by an
// addition, by pooling, by a linear layer; and a value that a batch norm and another layer read.
config::ModelConfig Ends() {
  return Model({Conv("c1", 4),
                Layer("bare", "batch_norm"),
                Conv("c2", 4),
                Layer("b2", "batch_norm"),
                Layer("r2", "relu"),
                Conv("c3", 4),
                Layer("b3", "batch_norm", {"c3"}),
                Layer("r3", "relu"),
                Conv("c4", 4),
                Layer("sum", "add", {"c4", "c3"}),
                Layer("twice", "batch_norm"),
                Layer("rt", "relu"),
                Conv("c5", 4),
                Layer("join", "add", {"c5", "rt"}),
                Layer("b6", "batch_norm"),
                Layer("r6", "relu"),
                Window("pool", "max_pool", 2, 2),
                Linear("f1", 8),
                Layer("n1", "batch_norm"),
                Layer("rf", "relu"),
                Linear("fc", 10)});
}

const Shape kImages{5, 6, 6, 3};

TEST_SUITE("cpu") {
  TEST_CASE("recomputed: where one product alone reads the end of a chain without an addition") {
    const Planned planned(Ends(), kImages, true);
    CHECK(planned.Readers() == Names{"bare>c2", "b2>c3", "b3>c4", "n1>fc"});
    CHECK(Planned(WithInput(), kImages, true).Readers().empty());
    for (const char* layer : {"bare", "b2", "r2", "b3", "r3", "n1", "rf"}) {
      CAPTURE(layer);
      CHECK_FALSE(planned.IsStored(layer));
    }
    for (const char* layer : {"c1", "c2", "c3", "rt", "r6", "f1"}) {
      CAPTURE(layer);
      CHECK(planned.IsStored(layer));
    }
    FusionLimits limits;
    limits.stored = {planned.NodeOf("b2"), planned.NodeOf("bare")};
    limits.unchained = {planned.NodeOf("b3")};
    CHECK(Planned(Ends(), kImages, true, limits).Readers() == Names{"n1>fc"});
    limits = {};
    limits.recompute = false;
    CHECK(Planned(Ends(), kImages, true, limits).Readers().empty());
  }

  TEST_CASE("recomputed: the batch norm's x lives until its consumer has read it") {
    // Times: the input at 0, then an op each: c1, bare, c2, b2 r2, c3, b3 r3, c4, ...
    const Planned evaluation(Ends(), kImages, false);
    CHECK(evaluation.LifeOf("c1").last == 3);
    CHECK(evaluation.LifeOf("c2").last == 5);
    CHECK(evaluation.LifeOf("c3").last == 8);  // by the addition, after its consumer c4
    const Planned training(Ends(), kImages, true);
    const Plan& plan = training.plan;
    for (const OpPlan& op : plan.ops) {
      if (op.consumer < 0) continue;
      const OpPlan* consumer = nullptr;
      for (const OpPlan& other : plan.ops)
        if (other.node == op.consumer) consumer = &other;
      REQUIRE(consumer);
      CHECK(consumer->recomputed == op.node);
      REQUIRE_FALSE(consumer->dx.empty());
      CHECK(consumer->dx[0] == op.dy);  // masked in place: no gradient in between
    }
  }

  TEST_CASE("recomputed: both ops are given the same") {
    const auto built = BuildTraining(Zoo("resnet20"), {7, 32, 32, 3});  // blocks of 3 images
    std::set<const float*> seen;
    int recomputed = 0;
    for (const auto& norm : built->backend.batch_norms) {
      if (!norm.recomputed) continue;
      ++recomputed;
      const backend::MatmulSpec* consumer = nullptr;
      for (const auto& conv : built->backend.convolutions)
        if (conv.recomputed.mean == norm.recomputed.mean) consumer = &conv;
      REQUIRE(consumer);
      const backend::RecomputedNorm &a = norm.recomputed, &b = consumer->recomputed;
      const std::int64_t c = norm.x.shape.c;
      CHECK(a.relu);
      CHECK(a.raw.data == norm.x.data);
      CHECK(b.raw.data == norm.x.data);
      CHECK_FALSE(norm.out);
      CHECK_FALSE(norm.addend);
      CHECK(consumer->x.shape == norm.x.shape);
      CHECK(consumer->x.format == norm.out.format);
      CHECK(a.beta == norm.beta.f32());
      CHECK(a.y_stats == norm.y_stats);
      CHECK(b.y_stats == norm.y_stats);
      CHECK(b.y_style.stream == norm.y_style.stream);
      CHECK(a.inverse - a.mean == c);
      CHECK(a.factor - a.inverse == c);
      CHECK(a.sum_dy - a.factor == c);
      CHECK(a.sum_dy_xhat - a.sum_dy == 3 * c);
      CHECK(b.sum_dy == a.sum_dy);
      CHECK(consumer->dx.tensor.data == norm.dy.tensor.data);
      CHECK(seen.insert(a.mean).second);
    }
    CHECK(recomputed == 9);
  }

  TEST_CASE("recomputed: an evaluation graph has no sums") {
    const config::ModelConfig model = Zoo("resnet20");
    FakeBackend backend;
    GraphSpec spec;
    spec.model = &model;
    spec.precision = Uniform(kFp16);
    spec.input = {4, 32, 32, 3};
    spec.training = false;
    const auto graph = Graph::Build(spec, backend);
    int recomputed = 0;
    for (const auto& conv : backend.convolutions) {
      recomputed += static_cast<bool>(conv.recomputed);
      CHECK(conv.recomputed.sum_dy == nullptr);
      CHECK(conv.recomputed.y_stats == nullptr);
    }
    CHECK(recomputed == 9);
  }

  TEST_CASE("recomputed: what is declined is asked for with its output stored, once") {
    const config::ModelConfig model = Zoo("resnet20");
    for (const bool by_reader : {false, true}) {
      FakeBackend backend;
      if (by_reader)
        backend.declines_consumer = [](const auto& s) { return s.x.shape.c == 32; };
      else
        backend.declines = [](const auto& s) { return s.recomputed && s.x.shape.c == 32; };
      GraphSpec spec;
      spec.model = &model;
      spec.precision = Uniform(kFp16);
      spec.input = {4, 32, 32, 3};
      const auto graph = Graph::Build(spec, backend);
      int recomputed = 0, stored = 0;
      // The last 19 are those of the graph; before them only what is fused was asked for.
      REQUIRE(backend.batch_norms.size() >= 19);
      for (std::size_t i = backend.batch_norms.size() - 19; i < backend.batch_norms.size(); ++i) {
        const backend::BatchNormSpec& norm = backend.batch_norms[i];
        recomputed += static_cast<bool>(norm.recomputed);
        stored += !norm.recomputed && norm.x.shape.c == 32;
        CHECK(norm.relu);
      }
      CHECK(recomputed == 6);
      CHECK(stored == 6);
      CHECK(backend.relus.empty());
      CHECK(backend.linears.size() == 1);  // not fused: asked for once
    }
  }
}

}  // namespace
}  // namespace ada::graph::test
