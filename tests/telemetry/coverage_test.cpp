// What was counted, and gradients that were lost before a run broke.
#include "telemetry/coverage.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

using namespace ada::telemetry;
using ada::TensorStats;

namespace {

TensorStats Stats(std::int64_t underflow, std::int64_t overflow = 0) {
  TensorStats stats;
  stats.numel = 200, stats.zeros_before = 100;
  stats.underflow = underflow, stats.overflow = overflow;
  return stats;
}

// A run whose forward pass leaves its format in step 3, and goes on so.
RunTotals Broken(double scale) {
  RunTotals run;
  for (std::int64_t step = 1; step <= 40; ++step) {
    const bool bad = step >= 3;
    run.Add(StepRow{step, 1, 2, 0.25, 0.1, scale, bad, bad, 1});
    if (bad) run.Add(EventRow{step, 1, "skip", "fc", "y", "70000", "skipped"});
  }
  return run;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the sentence names what was counted, what was not, and the steps") {
    LayerTotals layers;
    CHECK(LostText(layers, CoverageOf(layers, 9, {"operands"})) ==
          "what tensors lose was not counted (log.every, log.statistics)");
    for (int step = 0; step < 3; ++step) layers.AddUnderflow("fc", "dx", 1, Stats(0));
    layers.AddUnderflow("fc", "update", 1, Stats(100));
    CHECK(LostText(layers, CoverageOf(layers, 9, {"y", "w", "operands"})) ==
          "no value was lost of dx, 3 of 9 steps; not counted: y, w and operands "
          "(log.statistics); changes that left fc.update where it was: 100.000 % on the mean, "
          "100.000 % at most");
    TensorStats held = Stats(0);
    held.nan = 1;
    LayerTotals broken;
    broken.AddUnderflow("fc", "dx", 1, held);
    CHECK(LostText(broken, CoverageOf(broken, 9, {})) ==
          "no value was lost of dx, 1 of 9 steps; 1 tensor held inf or NaN");
    layers.AddUnderflow("fc", "dx.dy", 1, Stats(20));
    layers.AddUnderflow("fc", "dx.dy", 1, Stats(30));
    layers.AddUnderflow("fc", "forward.w", 1, Stats(0, 35));  // saturated
    CHECK(LostText(layers, CoverageOf(layers, 9, {})) ==
          "fc.forward.w lost most, 35.000 % on the mean, 35.000 % at most, of dx, 3 of 9 steps; "
          "operands, 2 of 9 steps; changes that left fc.update where it was: 100.000 % on the "
          "mean, 100.000 % at most");
    CHECK(LostMost(layers)->tensor == "forward.w");
  }

  TEST_CASE("what some steps alone counted is counted; a logged step that steps.csv lost counts") {
    LayerTotals layers;
    for (int step = 1; step <= 4; ++step) layers.AddUnderflow("fc", "dx", 1, Stats(0), "", step);
    layers.AddUnderflow("fc", "y", 1, Stats(0), "", 4);
    layers.AddUnderflow("fc", "w", 1, Stats(0), "", 4);
    CHECK(CoverageOf(layers, 0, {"y", "w", "operands"}).Text() ==
          "dx, 4 of 4 steps; y and w, 1 of 4 steps; not counted: operands (log.statistics)");
  }

  TEST_CASE("gradients that step 1 lost come before a forward pass that breaks later") {
    LayerTotals layers;
    layers.AddUnderflow("loss", "dx", 1, Stats(87), "fp8_e4m3", 1);
    layers.AddUnderflow("fc", "dx", 1, Stats(100), "fp8_e4m3", 1);
    const auto lost = FindLostFromTheStart(layers);
    REQUIRE(lost.has_value());
    CHECK(NameText(*lost) == "fc.dx lost 100 % of its values in step 1 (fp8_e4m3 at S = 1)");
    const Finiteness broken = Broken(1).finiteness();
    CHECK(broken.Text().find("a loss scale does not help") != std::string::npos);
    CHECK(broken.Text(lost).find("does not help") == std::string::npos);
    CHECK(broken.Text(lost).find("fc.dx lost 100 %") != std::string::npos);
    CHECK(broken.ShortText(lost).find("gradients were lost before, from step 1 on") !=
          std::string::npos);
    // A scale that grew since, a smaller loss, operands, and steps after the first explain nothing.
    LayerTotals grown = layers, later, less;
    grown.AddUnderflow("fc", "dx", 64, Stats(1), "fp8_e4m3", 2);
    grown.AddUnderflow("loss", "dx", 64, Stats(1), "fp8_e4m3", 2);
    CHECK_FALSE(FindLostFromTheStart(grown));
    later.AddUnderflow("loss", "dx", 1, Stats(1), "fp8_e4m3", 1);
    later.AddUnderflow("fc", "dx", 1, Stats(100), "fp8_e4m3", 2);
    later.AddUnderflow("fc", "dx.dy", 1, Stats(100), "fp8_e4m3", 1);
    CHECK_FALSE(FindLostFromTheStart(later));
    less.AddUnderflow("fc", "dx", 1, Stats(30), "fp8_e4m3", 1);
    CHECK_FALSE(FindLostFromTheStart(less));
  }
}
