// Layers without a gradient, from totals made by hand.
#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/totals.h"

namespace ada::telemetry {
namespace {

// Ten values, of which so many were zero as they came and so many more as they were rounded.
TensorStats Counts(std::int64_t zeros, std::int64_t underflow) {
  TensorStats stats;
  stats.numel = 10;
  stats.zeros_before = zeros;
  stats.underflow = underflow;
  return stats;
}

std::vector<std::string> Names(const std::vector<LayerWithoutGradient>& dead) {
  std::vector<std::string> names;
  for (const LayerWithoutGradient& layer : dead) names.push_back(layer.layer + "." + layer.tensor);
  return names;
}

using Texts = std::vector<std::string>;

TEST_SUITE("cpu") {
  TEST_CASE("a gradient that is rounded to nothing: where, and every layer after it") {
    LayerTotals layers;
    layers.AddUnderflow("loss", "dx", 4, Counts(0, 3), "fp8_e4m3");
    layers.AddUnderflow("fc", "dw", 1, Counts(0, 1), "fp8_e4m3");
    layers.AddUnderflow("fc", "dx", 4, Counts(2, 8), "fp8_e4m3");
    layers.AddUnderflow("conv2", "dw", 1, Counts(10, 0), "fp8_e4m3");
    layers.AddUnderflow("conv2", "dx", 4, Counts(10, 0), "fp8_e4m3");
    layers.AddUnderflow("conv1", "dw", 1, Counts(10, 0), "fp8_e4m3");
    const auto dead = LayersWithoutGradient(layers);
    CHECK(Names(dead) == Texts{"fc.dx", "conv2.dw", "conv1.dw"});
    for (const LayerWithoutGradient& layer : dead) {
      CHECK(layer.died_at == "fc.dx");
      CHECK(layer.by_rounding);
    }
    CHECK(NoGradientText(dead, 2) ==
          "no gradient: it died at fc.dx (all of its values underflowed in fp8_e4m3 at scale 4); "
          "3 layers without: fc conv2 and 1 more");
    CHECK(NoGradientText(dead, 3).ends_with("3 layers without: fc conv2 conv1"));
  }

  TEST_CASE("the network itself makes zeros: it is said, with what was lost before") {
    LayerTotals layers;
    layers.AddUnderflow("loss", "dx", 1, Counts(0, 0), "fp16");
    layers.AddUnderflow("fc", "dx", 1, Counts(0, 5), "fp16");
    layers.AddUnderflow("conv1", "dw", 1, Counts(10, 0), "fp16");
    const auto dead = LayersWithoutGradient(layers);
    CHECK(Names(dead) == Texts{"conv1.dw"});
    CHECK(dead.front().died_at == "fc.dx");
    CHECK(!dead.front().by_rounding);
    CHECK(dead.front().why ==
          "it lost 50 % in fp16 at scale 1; what was left became zero in the network itself (dead "
          "ReLUs, weights of zero)");
  }

  TEST_CASE(
      "a branch of zeros, while the gradient goes on past it; a chain that ends comes first") {
    LayerTotals layers;
    layers.AddUnderflow("loss", "dx", 1, Counts(0, 1), "fp16");
    layers.AddUnderflow("head2", "dw", 1, Counts(10, 0), "fp16");
    layers.AddUnderflow("head1", "dx", 1, Counts(0, 2), "fp16");
    const auto branch = LayersWithoutGradient(layers);
    REQUIRE(Names(branch) == Texts{"head2.dw"});
    CHECK(branch.front().died_at == "branch");
    CHECK_FALSE(branch.front().by_rounding);
    CHECK(CauseText(branch.front()).starts_with("a branch without, while the gradient goes on"));
    CHECK(NoGradientText(branch, 2).starts_with("no gradient: in a branch (while the gradient "));
    CHECK(NoGradientText(branch, 2).ends_with("; 1 layer without: head2"));

    layers.AddUnderflow("conv1", "dw", 1, Counts(10, 0), "fp16");
    const auto both = LayersWithoutGradient(layers);
    CHECK(Names(both) == Texts{"head2.dw", "conv1.dw"});
    CHECK(NoGradientText(both, 2).starts_with("no gradient: it died at head1.dx (it lost 20 %"));
  }

  TEST_CASE("no tensor had values: it died at the loss") {
    LayerTotals layers;
    layers.AddUnderflow("loss", "dx", 1, Counts(10, 0));
    layers.AddUnderflow("fc", "dx", 1, Counts(10, 0));
    const auto dead = LayersWithoutGradient(layers);
    CHECK(Names(dead) == Texts{"loss.dx", "fc.dx"});
    CHECK(dead.back().died_at == "loss");
  }

  TEST_CASE("the last logged step decides; a value is enough; empty tensors and y, w say nothing") {
    LayerTotals layers;
    layers.AddUnderflow("fc", "dx", 1, Counts(10, 0));
    layers.AddUnderflow("fc", "dx", 1, Counts(9, 0));
    layers.AddUnderflow("relu", "y", 1, Counts(10, 0));
    layers.AddUnderflow("none", "dx", 1, TensorStats());
    CHECK(LayersWithoutGradient(layers).empty());
    CHECK(NoGradientText({}, 5) == "");
    layers.AddUnderflow("fc", "dx", 1, Counts(9, 1));
    CHECK(Names(LayersWithoutGradient(layers)) == Texts{"fc.dx"});
  }
}

}  // namespace
}  // namespace ada::telemetry
