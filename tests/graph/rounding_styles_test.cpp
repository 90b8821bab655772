// Streams of random numbers and scales of tensors: which rounding has which, fused or not, trained
// or evaluated.
#include "graph/rounding_styles.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "graph/bound_roundings.h"
#include "graph/fake_backend.h"
#include "graph/networks.h"
#include "graph/precisions.h"

namespace ada::graph::test {
namespace {

struct Built {
  FakeBackend backend;
  std::unique_ptr<Graph> graph;

  Built(const TestNetwork& network, const Precision& precision, bool fuse = true,
        bool training = true, const Graph* share = nullptr) {
    GraphSpec spec;
    spec.model = &network.model;
    spec.precision = precision;
    spec.input = network.input;
    spec.task = network.task;
    spec.fuse = fuse;
    spec.training = training;
    graph = Graph::Build(spec, backend, share);
  }
  std::map<std::string, const TensorScale*> Scales() const {
    std::map<std::string, const TensorScale*> scales;
    for (const ScaledTensor& tensor : graph->scaled_tensors()) {
      CHECK(scales.emplace(tensor.name(), tensor.scale).second);
    }
    return scales;
  }
};

Precision Stochastic(Precision precision) {
  precision.stochastic = true;
  return precision;
}

std::vector<std::string> NamesOf(const Built& built) {
  std::vector<std::string> names;
  for (const ScaledTensor& tensor : built.graph->scaled_tensors()) names.push_back(tensor.name());
  return names;
}

const TestNetwork kSmall = {
    "small",
    Model({Conv("c", 4), Layer("b", "batch_norm"), Layer("r", "relu"), Layer("cast", "scale"),
           Layer("sum", "add", {"cast", "r"}), Layer("drop", "dropout"), Linear("fc", 10)}),
    {4, 8, 8, 3}};

TEST_SUITE("cpu") {
  TEST_CASE("every rounding has a stream, and no two share one") {
    for (const TestNetwork& network : AllNetworks()) {
      CAPTURE(network.name);
      const Built built(network, Uniform(kFp16));
      std::set<std::uint64_t> streams = {StreamId("round:input.y")};
      for (const RoundingPoint& point : built.graph->roundings()) {
        streams.insert(StreamId("round:" + point.layer + "." + point.tensor));
      }
      CHECK(streams.size() == built.graph->roundings().size());
      const auto bound = BoundRoundings(built.backend, *built.graph);
      std::set<std::uint64_t> found;
      for (const auto& [stream, rounding] : bound) found.insert(stream);
      CHECK(found == streams);
      // Nor with dropout's masks and the start values, which are drawn with the same seed.
      for (const auto& spec : built.backend.dropouts) CHECK(streams.count(spec.stream) == 0);
      for (const Parameter& parameter : built.graph->parameters()) {
        CHECK(streams.count(StreamId(parameter.name)) == 0);
      }
    }
    CHECK(StreamId("round:conv1.y") == 0x281194736e172225u);  // a run can be repeated for ever
  }

  TEST_CASE("fused and unfused graphs bind the same styles and formats") {
    const auto precisions = {Stochastic(Patchwork()), Stochastic(HybridFp8())};
    for (const TestNetwork& network : AllNetworks()) {
      for (const Precision& precision : precisions) {
        CAPTURE(network.name);
        const Built fused(network, precision, true), parts(network, precision, false);
        const auto a = BoundRoundings(fused.backend, *fused.graph);
        CHECK(!a.empty());
        CHECK(a == BoundRoundings(parts.backend, *parts.graph));
        CHECK(NamesOf(fused) == NamesOf(parts));
      }
    }
  }

  TEST_CASE("stochastic in training alone, and only where something is rounded") {
    for (const bool training : {true, false}) {
      const Built built(kSmall, Stochastic(HybridFp8()), true, training);
      for (const auto& [stream, rounding] : BoundRoundings(built.backend, *built.graph)) {
        CHECK(rounding.stochastic == (training && rounding.format != kFp32));
      }
    }
    const Built nearest(kSmall, HybridFp8());
    for (const auto& [stream, rounding] : BoundRoundings(nearest.backend, *nearest.graph)) {
      CHECK_FALSE(rounding.stochastic);
    }
  }

  TEST_CASE("delayed scaling: one own scale for each rounded tensor that is not fp32") {
    const Built built(kSmall, HybridFp8());
    CHECK(NamesOf(built) == std::vector<std::string>{"input.y", "c.w", "c.y", "b.y", "cast.y",
                                                     "sum.y", "drop.y", "fc.dx", "drop.dx",
                                                     "cast.dx", "r.dy", "b.dx"});
    const auto scales = built.Scales();
    CHECK(scales.at("input.y")->history.rule.format_max == 448);
    CHECK(scales.at("c.w")->history.rule.format_max == 448);
    CHECK(scales.at("r.dy")->history.rule.format_max == 57344);
    CHECK(scales.at("r.dy")->history.rule.history == 4);
    CHECK(scales.at("r.dy")->per_tensor_scale.host->scale == 1);
    for (const RoundingPoint& point : built.graph->roundings()) {
      const auto found = scales.find(point.layer + "." + point.tensor);
      CHECK(point.per_tensor_scale ==
            (found == scales.end() ? nullptr : found->second->per_tensor_scale.host));
    }
    for (const ScaledTensor& tensor : built.graph->scaled_tensors()) CHECK(tensor.stats);
    CHECK(built.backend.inputs[0].y_stats == built.graph->scaled_tensors()[0].stats);

    Precision forward = HybridFp8();
    forward.scaled_backward = false;
    CHECK(NamesOf(Built(kSmall, forward)) ==
          std::vector<std::string>{"input.y", "c.w", "c.y", "b.y", "cast.y", "sum.y", "drop.y"});
    const Built none(kSmall, Uniform(kFp8E4M3));
    CHECK(none.graph->scaled_tensors().empty());
    CHECK(none.backend.inputs[0].y_stats == none.graph->roundings()[0].backend_stats);
  }

  TEST_CASE("an evaluation graph takes the own scales of the trained one, or has its own") {
    const Built trained(kSmall, HybridFp8());
    const Built shared(kSmall, HybridFp8(), true, false, trained.graph.get());
    const Built alone(kSmall, HybridFp8(), true, false);
    const auto of_trained = trained.Scales();
    for (const Built* graph : {&shared, &alone}) {
      CHECK(NamesOf(*graph) ==
            std::vector<std::string>{"input.y", "c.w", "c.y", "b.y", "cast.y", "sum.y", "drop.y"});
      CHECK(graph->graph->roundings().empty());
      for (const ScaledTensor& tensor : graph->graph->scaled_tensors()) {
        CHECK(tensor.stats == nullptr);
        CHECK((tensor.scale == of_trained.at(tensor.name())) == (graph == &shared));
        CHECK(tensor.scale->history.rule.format_max == 448);
      }
      CHECK(graph->backend.inputs[0].y_stats == nullptr);
      CHECK(graph->backend.inputs[0].y_style.per_tensor_scale ==
            graph->Scales().at("input.y")->per_tensor_scale.backend);
      CHECK(graph->backend.convolutions[0].w_style.per_tensor_scale ==
            graph->Scales().at("c.w")->per_tensor_scale.backend);
    }
  }
}

}  // namespace
}  // namespace ada::graph::test
