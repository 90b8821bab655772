// Who is to note the largest magnitude of what a convolution or linear layer rounds: what reads it
// first, if it can, else the layer itself.
#include <doctest/doctest.h>

#include <set>
#include <string>

#include "graph/networks.h"
#include "graph/plan/plan.h"
#include "graph/precisions.h"

namespace ada::graph::test {
namespace {

using Names = std::set<std::string>;

// "c1>b1": y of c1 is left to b1.
struct Left {
  Names values, gradients;
};

struct Setting {
  NumberFormat format = kFp16;
  bool fuse = true, training = true, stochastic = false;
};

Left LeftIn(const config::ModelConfig& model, const Setting& setting) {
  const Network network = Resolve(model, {4, 8, 8, 3});
  const NetworkStorage storage = ResolveStorage(network, Uniform(setting.format));
  PlanSpec spec;
  spec.images = 4, spec.storage = &storage;
  spec.training = setting.training, spec.stochastic = setting.stochastic;
  FusionLimits limits;
  limits.recompute = false;
  if (setting.fuse) spec.chains = FindChains(network, limits);
  spec.rules.resize(network.nodes.size());
  const Plan plan = MakePlan(network, spec);
  Left left;
  const auto name = [&](int node) { return network.nodes[node].config.name; };
  for (std::size_t value = 1; value < plan.amax_deferred_to.size(); ++value)
    if (plan.amax_deferred_to[value] >= 0)
      left.values.insert(name(static_cast<int>(value) - 1) + ">" +
                         name(plan.amax_deferred_to[value]));
  for (const GradientPlan& gradient : plan.gradients)
    if (gradient.amax_deferred) left.gradients.insert(name(gradient.node));
  return left;
}

// c2's dx meets another branch, c3's goes through an addition to a batch norm and a branch, c4's to
// a pool; c3 is read by its batch norm and by an addition.
config::ModelConfig Branches() {
  return Model({Conv("c1", 8), Layer("b1", "batch_norm"), Layer("r1", "relu"), Conv("c2", 8),
                Layer("b2", "batch_norm"), Layer("sum", "add", {"b2", "r1"}), Conv("c3", 8),
                Layer("b3", "batch_norm", {"c3"}), Layer("join", "add", {"b3", "c3"}),
                Layer("r3", "relu"), Window("halved", "max_pool", 2, 2), Conv("c4", 8),
                Layer("r4", "relu"), Layer("pool", "global_avg_pool"), Linear("fc", 10)});
}
config::ModelConfig Row() {
  return Model({Conv("c1", 8), Layer("b1", "batch_norm"), Layer("r1", "relu"), Conv("c2", 8),
                Layer("b2", "batch_norm"), Layer("r2", "relu"), Linear("fc", 10)});
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("largest magnitudes are left to batch norms that read first") {
    for (const NumberFormat& format : {kFp16, kBf16}) {
      const Left row = LeftIn(Row(), {format}), branches = LeftIn(Branches(), {format});
      CHECK(row.values == Names{"c1>b1", "c2>b2"});
      CHECK(row.gradients == Names{"c2", "fc"});
      CHECK(branches.values == Names{"c1>b1", "c2>b2", "c3>b3"});
      CHECK(branches.gradients == Names{"c2", "c3"});  // c2's to a sum
    }
  }

  TEST_CASE("largest magnitudes of gradients are left to norms, GELU and dropout") {
    const config::ModelConfig model =
        Model({Conv("c1", 8), Layer("n1", "layer_norm"), Conv("c2", 8), Layer("g2", "gelu"),
               Conv("c3", 8), Layer("d3", "dropout"), Conv("c4", 8), Layer("t4", "tanh"),
               Linear("fc", 10)});
    const Left left = LeftIn(model, {});
    CHECK(left.values.empty());
    CHECK(left.gradients == Names{"c2", "c3", "c4"});
  }

  TEST_CASE("largest magnitudes: a relu that runs by itself reads before the batch norm") {
    const Left left = LeftIn(Row(), {.fuse = false});
    CHECK(left.values == Names{"c1>b1", "c2>b2"});
    CHECK(left.gradients.empty());
  }

  TEST_CASE("largest magnitudes are not left where what is stored does not tell them") {
    for (const Setting& setting : {Setting{kFp32}, Setting{kFp8E5M2}, Setting{kCb16},
                                   Setting{.training = false}, Setting{.stochastic = true}}) {
      const Left left = LeftIn(Row(), setting);
      CHECK(left.values.empty());
      CHECK(left.gradients.empty());
    }
  }
}

}  // namespace ada::graph::test
