// Unpooling in a network: which pool it belongs to, sizes it gives back, what is refused, and that
// both ops get the same memory for positions. Beside it the shapes of joined boxes.
#include <doctest/doctest.h>

#include "error.h"
#include "graph/fake_layers.h"
#include "graph/graph.h"
#include "graph/network/shapes.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

config::LayerConfig Pool(const std::string& name, int kernel, int stride, bool ceil,
                         std::vector<std::string> inputs = {}) {
  config::LayerConfig layer = Window(name, "max_pool", kernel, stride, std::move(inputs));
  layer.ceil_mode = ceil;
  return layer;
}
config::LayerConfig Back(const std::string& name, const std::string& pool, bool whole,
                         std::vector<std::string> inputs = {}) {
  config::LayerConfig layer = Layer(name, "max_unpool", std::move(inputs));
  layer.pool = pool, layer.whole = whole;
  return layer;
}
Network Resolved(std::vector<config::LayerConfig> layers, const Shape& input) {
  layers.push_back(Linear("fc", 10));
  return Resolve(Model(std::move(layers)), input);
}
std::string Refusal(const std::vector<config::LayerConfig>& layers, const Shape& input) {
  try {
    Resolved(layers, input);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("max_unpool gives back the size that the pool's input had, or whole windows") {
    const Shape input{1, 45, 60, 3};
    Network n = Resolved({Pool("p", 2, 2, true), Back("u", "p", false)}, input);
    CHECK(n.nodes[0].output == Shape{1, 23, 30, 3});
    CHECK(n.nodes[1].output == input);
    CHECK(n.nodes[1].pool == 0);
    n = Resolved({Pool("p", 2, 2, false), Back("u", "p", false)}, input);
    CHECK(n.nodes[1].output == input);
    n = Resolved({Pool("p", 2, 2, true), Back("u", "p", true)}, input);
    CHECK(n.nodes[1].output == Shape{1, 46, 60, 3});
    // 45 -> 23 -> 12 -> 24 -> 45: the row that came too much is cut.
    n = Resolved({Pool("p1", 2, 2, true), Pool("p2", 2, 2, true), Back("u2", "p2", true),
                  Back("u1", "p1", false)},
                 input);
    CHECK(n.nodes[2].output == Shape{1, 24, 30, 3});
    CHECK(n.nodes[3].output == input);
  }

  TEST_CASE("max_unpool: what is refused, by name") {
    const Shape input{1, 8, 8, 3};
    const auto message = [&](const std::vector<config::LayerConfig>& layers) {
      return Refusal(layers, input);
    };
    CHECK(message({Pool("pool1", 2, 2, false), Back("u", "pol1", false)}) ==
          "layer u: unknown pool 'pol1'; did you mean 'pool1'?");
    CHECK(message({Conv("c", 3), Back("u", "c", false)}) ==
          "layer u: pool c is no max_pool that stands before it");
    CHECK(message({Back("u", "p", false), Pool("p", 2, 2, false)}) ==
          "layer u: pool p is no max_pool that stands before it");
    CHECK(message({Pool("p", 3, 2, false), Back("u", "p", false)}) ==
          "layer u: pool p's windows overlap: kernel 3x3, stride 2x2; two maxima could go back to "
          "one place");
    CHECK(message({Pool("p", 2, 2, false), Conv("c", 4), Back("u", "p", false)}) ==
          "layer u: channels differ: input 4x4x4, pool p gave 4x4x3");
    CHECK(message({Pool("p", 2, 2, false), Pool("q", 2, 2, false), Back("u", "p", false)}) ==
          "layer u: input 2x2x3 is smaller than what pool p gave, 4x4x3");
  }

  TEST_CASE("concat_boxes: boxes of all pixels; channels hold whole boxes") {
    const Shape input{1, 4, 6, 3};
    const auto boxes = [](int values) {
      config::LayerConfig layer = Layer("boxes", "concat_boxes", {"a", "b"});
      layer.values = values;
      return layer;
    };
    config::LayerConfig second = Conv("b", 12);
    second.stride = {2, 2};
    const Network n = Resolved({Conv("a", 8), second, boxes(4)}, input);
    CHECK(n.nodes[2].output == Shape{1, 1, 4 * 6 * 2 + 2 * 3 * 3, 4});
    CHECK(Refusal({Conv("a", 8), second, boxes(3)}, input) ==
          "layer boxes: values 3 must divide the channels of each input; a has 4x6x8");
  }

  TEST_CASE("a pool and what undoes it get the same positions, in training and evaluation") {
    const config::ModelConfig model =
        Model({Conv("c", 4), Pool("p1", 2, 2, true), Pool("p2", 2, 2, true),
               Back("u", "p1", false, {"p1"}), Pool("p3", 2, 2, false),
               Layer("g1", "global_avg_pool", {"p2"}), Layer("g2", "global_avg_pool", {"p3"}),
               Layer("join", "add", {"g1", "g2"}), Linear("fc", 10)});
    for (const bool training : {true, false}) {
      FakeBackend backend;
      GraphSpec spec;
      spec.model = &model;
      spec.input = {5, 9, 7, 3};
      spec.training = training;
      const auto graph = Graph::Build(spec, backend);
      REQUIRE(backend.max_unpools.size() == 1);
      REQUIRE(backend.max_pools.size() == 3);
      const backend::MaxUnpoolSpec& unpool = backend.max_unpools[0];
      CHECK(unpool.positions != nullptr);
      CHECK(unpool.positions == backend.max_pools[0].positions);
      CHECK(backend.max_pools[1].positions == nullptr);
      CHECK(unpool.pooled.h == 5);
      CHECK(unpool.kernel == std::array<int, 2>{2, 2});
    }
  }
}

}  // namespace ada::graph::test
