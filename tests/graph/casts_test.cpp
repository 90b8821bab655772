// `kind: scale`, the paper's cast, in the plan: its rule, scale, moments and place in the lists.
#include <doctest/doctest.h>

#include "graph/build_training.h"
#include "graph/networks.h"

namespace ada::graph::test {
namespace {

TEST_SUITE("cpu") {
  TEST_CASE("a cast asks a rule, takes its moments and has a scale of its own") {
    for (const LayerMethod method :
         {LayerMethod::kPass, LayerMethod::kState, LayerMethod::kApproxRange}) {
      const auto built = BuildTraining(WithCasts(), {4, 6, 6, 3}, true, method);
      const auto& casts = built->backend.casts;
      REQUIRE(casts.size() == 5);
      CHECK_FALSE(casts[0].dx);  // nothing before it is trained
      CHECK(casts[0].scaler == nullptr);
      CHECK(built->requests.count("early") == 0);
      for (std::size_t i = 1; i < casts.size(); ++i) {
        CHECK(casts[i].dx.stats);
        CHECK(casts[i].y_stats);
        REQUIRE(casts[i].scaler);
        CHECK(casts[i].scaler->rule.method == method);
        CHECK(casts[i].dx.scale != casts[i].dy.scale);
        // The dy of `cast` is a branch too, and not rounded: scales that differ want its moments.
        const bool asked =
            method == LayerMethod::kApproxRange || (i == 3 && method != LayerMethod::kPass);
        CHECK((casts[i].dy.moments != nullptr) == asked);
      }
      const ScalerRequest& request = built->requests.at("down");
      CHECK_FALSE(request.has_weight);
      CHECK(request.fan_reference == 1);
      CHECK(request.fan_exact == 1);
      CHECK(built->requests.at("fc").has_weight);
      std::vector<std::string> decisions;
      for (const ScalePoint& point : built->graph->scales()) {
        decisions.push_back((point.scaler ? "" : "branch ") + point.layer);
      }
      CHECK(decisions == std::vector<std::string>{"fc", "head", "cast", "branch b2", "up", "c2",
                                                  "down", "branch r1"});
      for (const LayerRow& row : built->graph->layers()) {
        if (row.kind == "scale") CHECK_FALSE(row.has_weight);
      }
    }
  }

  // Where a rounding to nearest does not say how large they are.
  TEST_CASE("scales of branches differ under every rule but pass: their moments are wanted") {
    for (const LayerMethod method : {LayerMethod::kPass, LayerMethod::kFixed, LayerMethod::kState,
                                     LayerMethod::kApproxRange}) {
      const auto built =
          BuildTraining(WithCasts(), {4, 6, 6, 3}, true, method, /*stochastic=*/true);
      REQUIRE(built->backend.branch_sums.size() == 2);
      for (const Gradient& branch : built->backend.branch_sums[1].branches) {  // down and up
        CHECK((branch.moments != nullptr) == (method != LayerMethod::kPass));
      }
    }
  }

  TEST_CASE("no cast reads a gradient that was masked in place") {
    const auto built =
        BuildTraining(Model({Conv("c", 4), Layer("b", "batch_norm"), Conv("s", 4, {"input"}),
                             Layer("up", "scale"), Layer("join", "add", {"b", "up"}),
                             Layer("r", "relu"), Linear("fc", 10)}),
                      {4, 8, 8, 3});
    REQUIRE(built->backend.batch_norms.size() == 1);
    CHECK(built->backend.batch_norms[0].addend);
    CHECK_FALSE(built->backend.batch_norms[0].relu);
    CHECK(built->backend.casts[0].dy.moments);
  }
}

}  // namespace
}  // namespace ada::graph::test
