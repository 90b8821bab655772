// Roundings that ops leave to the next one (rounding/row_chain.h), weight gradients that layers
// leave to one launch (side_stream.h), and largest magnitudes that are left to who reads: training
// steps of a small transformer have the same bytes as without, whatever the order of blocks and
// streams.
#include <doctest/doctest.h>

#include <algorithm>

#include "compare/network_steps.h"
#include "cuda/on_both.h"
#ifndef ADA_CUDA_DEVICE
#include "backend/cuda/context.h"
#include "cuda/host/host_stream.h"
#endif

namespace ada::backend::test {
namespace {

using graph::test::TestNetwork;

// Positions are no multiple of a block's rows, nor channels of its threads.
TestNetwork Transformer() {
  TestNetwork network = {"transformer", graph::test::Zoo("vit"), {5, 8, 12, 3}};
  config::TransformerConfig& of = network.model.transformer;
  of.layers = 2, of.heads = 2, of.width = 24, of.hidden = 40;
  network.model.dropout = 0.25;
  return network;
}
TestNetwork Convolutions() { return {"awkward", graph::test::Awkward(), {5, 10, 9, 3}}; }

struct Found {
  std::vector<double> losses, norms;
  std::vector<float> weights;
  std::vector<TensorStats> stats;
};

Found StepsOf(const TestNetwork& network, const Training& training, Backend& backend) {
  NetworkSteps steps(network, training, backend);
  for (int i = 0; i < 6; ++i) steps.Step();
  Found found;
  found.losses = steps.losses(), found.norms = steps.norms();
  for (const graph::Parameter& p : steps.graph().parameters()) {
    std::vector<float> values(static_cast<std::size_t>(p.numel()));
    backend.Read(p.value, p.value.shape.n, values.data());
    found.weights.insert(found.weights.end(), values.begin(), values.end());
  }
  for (const graph::RoundingPoint& point : steps.graph().roundings())
    found.stats.push_back(*point.stats);
  return found;
}

void CheckSame(const Found& a, const Found& b) {
  CHECK(a.losses == b.losses);
  CHECK(a.norms == b.norms);
  CHECK(a.weights == b.weights);
  REQUIRE(a.stats.size() == b.stats.size());
  for (std::size_t i = 0; i < a.stats.size(); ++i) {
    CAPTURE(i);
    CHECK(a.stats[i].numel == b.stats[i].numel);
    CHECK(ada::test::Same(a.stats[i].max_abs, b.stats[i].max_abs));
    CHECK(a.stats[i].underflow == b.stats[i].underflow);
  }
}

std::vector<Training> Trainings() {
  std::vector<Training> all;
  for (const Training& training : AllTrainings())
    for (const char* name : {"fp16, approx_range", "bf16, lognormal", "stochastic"})
      if (training.name == name) all.push_back(training);
  return all;
}

}  // namespace

TEST_SUITE(ADA_SUITE) {
  TEST_CASE("sequences: what ops leave to others has the bytes of launches of their own") {
    CudaSwitches products, apart;
    products.attention = false;  // which adds up in another order
    apart.fused = false;
    for (const Training& training : Trainings())
      for (const TestNetwork& network : {Transformer(), Convolutions()}) {
        CAPTURE(training.name);
        CAPTURE(network.name);
        CheckSame(StepsOf(network, training, *MakeBackendUnderTest(products)),
                  StepsOf(network, training, *MakeBackendUnderTest(apart)));
      }
  }
}

#ifndef ADA_CUDA_DEVICE
namespace {

struct OnHost {
  explicit OnHost(const CudaSwitches& switches = {}, bool reverse = false, bool main_late = false,
                  bool sides_late = false) {
    auto owned = std::make_unique<cuda::HostStream>(switches);
    stream = owned.get();
    stream->set_late(main_late, sides_late), stream->set_reverse(reverse);
    backend = cuda::MakeBackendOn(std::move(owned), {"test", "host"}, {});
  }
  cuda::HostStream* stream;
  std::unique_ptr<Backend> backend;
};

std::ptrdiff_t Count(const std::vector<std::string>& names, const std::string& part) {
  return std::count_if(names.begin(), names.end(), [&](const std::string& name) {
    return name.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("what ops leave to others depends on no order of blocks and streams") {
    CudaSwitches one_stream, no_graphs;
    one_stream.side_stream = false;
    no_graphs.graphs = false;
    for (const Training& training : Trainings()) {
      CAPTURE(training.name);
      const auto steps = [&](const OnHost& on) {
        return StepsOf(Transformer(), training, *on.backend);
      };
      const Found made = steps(OnHost());
      CheckSame(made, steps(OnHost({}, /*reverse=*/true)));
      CheckSame(made, steps(OnHost({}, false, true, false)));
      CheckSame(made, steps(OnHost({}, true, false, true)));
      CheckSame(made, steps(OnHost(one_stream)));
      CheckSame(made, steps(OnHost(no_graphs)));
    }
  }

  TEST_CASE("what ops leave to others: launches of a step") {
    CudaSwitches apart;
    apart.fused = false;
    const auto names = [](const CudaSwitches& switches) {
      const OnHost on(switches);
      NetworkSteps steps(Transformer(), Trainings()[0], *on.backend);
      for (int i = 0; i < 4; ++i) steps.Step(/*counts=*/false);
      on.stream->KeepNames();
      steps.Step(false);
      return on.stream->TakeNames();
    };
    const std::vector<std::string> made = names({}), alone = names(apart);
    // In each of two micro-batches two blocks with two sums each, that of the last one without
    // dropout's.
    CHECK(Count(made, "RowStage") == 2 * 5);
    CHECK(Count(alone, "RowStage") == 0);
    CHECK(Count(made, "LargestPlain") == 2);  // of the head, whose dx nothing takes
    CHECK(Count(alone, "LargestPlain") > 2 * 5);
    CHECK(Count(made, "UnscaledGradient") < Count(alone, "UnscaledGradient"));
    CHECK(made.size() < alone.size());
  }
}
#endif

}  // namespace ada::backend::test
