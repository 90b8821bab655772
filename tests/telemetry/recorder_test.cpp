// Recorder and totals: sums by hand, and a resumed run's summary equal to an uninterrupted one's.
#include "telemetry/recorder.h"

#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "error.h"
#include "telemetry/summary.h"
#include "temp_folder.h"

using namespace ada::telemetry;
using ada::TensorStats;
using ada::scaling::Limit;
using ada::scaling::ScaleDecision;
using ada::testing::TempFolder;

namespace {

TensorStats Stats(std::int64_t numel, std::int64_t zeros, std::int64_t underflow) {
  TensorStats stats;
  stats.numel = numel;
  stats.zeros_before = zeros;
  stats.underflow = underflow;
  stats.full = true;
  return stats;
}

// A run whose numbers need all their digits: any loss on the way through the files shows.
void RunStep(Recorder& recorder, std::int64_t step) {
  const std::int64_t epoch = 1 + (step - 1) / 10;
  const double x = std::sqrt(static_cast<double>(step));
  recorder.Step({step, epoch, step == 7 ? NAN : 2 / x, x / 10, 0.1 / x, 65536 / x, step % 7 == 0,
                 step % 7 == 0, x});
  if (step % 10 == 0) {
    recorder.Evaluation({step, epoch, "validation", 500, 1 / x, std::sin(x), x / 9});
    recorder.Evaluation({step, epoch, "test", 1000, 1 / x, std::cos(x), x / 9});
  }
  if (step % 3 != 0) return;
  for (const char* layer : {"fc", "stage1.conv1", "name, \"quoted\""}) {
    recorder.Underflow(step, epoch, layer, "dx", ada::kFp16, 128 / x,
                       Stats(1000 + step, step * 7 % 11, step * 13 % 17));
    ScaleDecision decision;
    decision.scale_in = static_cast<float>(128 / x);
    decision.unbound = x * 1e3;
    decision.bound = x;
    decision.alpha = static_cast<float>(x);
    decision.limit = step % 2 == 0 ? Limit::kScaleBound : Limit::kTarget;
    recorder.Scale(step, epoch, layer, "adaptive", decision);
    decision.limit = Limit::kBranch;
    recorder.Scale(step, epoch, layer, "adaptive", decision);
  }
  recorder.Event({step, epoch, "skip", "fc", "dw", "inf", "text"});
  recorder.Timing({step, 1.5, 300, 0.1, 0.2, 0.3, 0.4, 0.5});
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("totals of a tensor over its rows") {
    LayerTotals totals;
    totals.AddUnderflow("a", "dx", 2, Stats(100, 50, 10));   // 20 %
    totals.AddUnderflow("b", "dx", 3, Stats(10, 10, 0));     // nothing to lose
    totals.AddUnderflow("a", "dx", 4, Stats(200, 100, 40));  // 40 %
    totals.AddUnderflow("a", "dx", 8, Stats(100, 100, 0));
    REQUIRE(totals.tensors().size() == 2);
    const TensorTotals& a = totals.tensors()[0];
    CHECK(a.layer == "a");
    CHECK(a.rows == 3);
    CHECK(a.pct_rows == 2);
    CHECK(a.numel == 400);
    CHECK(a.zeros_before == 250);
    CHECK(a.underflow == 50);
    CHECK(a.pct_mean() == 30);
    CHECK(a.pct_max == 40);
    CHECK(a.last_scale == 8);
    CHECK(a.last_pct == 0);  // nothing to lose in the last row
    CHECK(totals.tensors()[1].pct_mean() == 0);
    totals.AddUnderflow("b", "dx", 3, Stats(10, 2, 1));
    CHECK(totals.FindTensor("a", "dx") == &totals.tensors()[0]);
    CHECK(totals.FindTensor("b", "dx")->last_pct == 12.5);
    CHECK(totals.FindTensor("a", "dy") == nullptr);
    CHECK(totals.FindTensor("c", "dx") == nullptr);
  }

  TEST_CASE("totals of a layer's decisions; a branch point of the same name is apart") {
    LayerTotals totals;
    totals.AddScale("a", {1, 100, 16, 16, 16, 16, Limit::kScaleBound});
    totals.AddScale("a", {2, 3, 3, 2, 2, 4, Limit::kTarget});
    totals.AddScale("a", {4, NAN, NAN, NAN, 1, 2, Limit::kBranch});
    totals.AddScale("a", {4, 5, 4, 4, 4, 16, Limit::kTarget});
    REQUIRE(totals.FindScale("a", false) != nullptr);
    REQUIRE(totals.FindScale("a", true) != nullptr);
    CHECK(totals.FindScale("b", false) == nullptr);
    const ScaleTotals& a = *totals.FindScale("a", false);
    CHECK(a.rows == 3);
    CHECK(a.limits == std::map<std::string, std::int64_t>{{"SB", 1}, {"target", 2}});
    CHECK(a.last_scale_in == 4);
    CHECK(a.last_scale_out == 16);
    CHECK(a.last_alpha == 4);
    CHECK(a.last_bound == 4);
    CHECK(a.last_limit == "target");
    CHECK(std::isnan(totals.FindScale("a", true)->last_alpha));
    CHECK(totals.FindScale("a", true)->last_scale_out == 2);
  }

  TEST_CASE("totals of a run: the last epoch's means, skips, the last and the best evaluation") {
    RunTotals run;
    CHECK(std::isnan(run.epoch_loss()));
    run.Add(StepRow{1, 1, 9, 0.1, 0.1, 1, false, false, 1});
    run.Add(StepRow{2, 2, 4, 0.25, 0.1, 1, false, false, 1});
    run.Add(StepRow{3, 2, INFINITY, 0, 0.1, 2, true, true, 1});
    run.Add(StepRow{4, 2, 2, 0.75, 0.1, 4, false, true, 1});
    run.Add(StepRow{5, 2, 0, 0, 0.1, 4, false, false, 0});  // without labels: no part in the means
    CHECK(run.steps() == 5);
    CHECK(run.skipped() == 2);
    CHECK(run.epoch_loss() == 3);
    CHECK(run.epoch_accuracy() == 0.5);
    CHECK(run.last().scale == 4);
    for (const double top1 : {0.5, 0.875, 0.75, 0.875}) {
      const auto epoch = static_cast<std::int64_t>(
          run.evaluations().empty() ? 1 : run.evaluations()[0].last.epoch + 1);
      run.Add(EvaluationRow{epoch * 10, epoch, "test", 100, 1, top1, 1});
    }
    run.Add(EvaluationRow{40, 4, "train", 100, 1, 0.25, 1});
    REQUIRE(run.evaluations().size() == 2);
    CHECK(run.evaluations()[0].last.epoch == 4);
    CHECK(run.evaluations()[0].best.epoch == 2);
    CHECK(run.evaluations()[1].best.top1 == 0.25);
  }

  TEST_CASE("before Open every row goes to the totals alone") {
    const TempFolder folder;
    LogChoice all;
    all.histograms = all.what_if = all.what_if_blocks = all.probes = all.blocks = true;
    all.accumulators = all.what_if_accumulators = true;
    all.classes = all.confusion = all.losses = true;
    Recorder closed, open(folder.path(), {}, all);
    for (Recorder* recorder : {&closed, &open}) {
      RunStep(*recorder, 3);
      RunStep(*recorder, 10);
      recorder->Histogram(3, 1, "fc", "dx", 1, {});
      recorder->Blocks({});
      recorder->WhatIf(WhatIfRow{});
      recorder->WhatIf(WhatIfBlockRow{});
      recorder->Accumulators({});
      recorder->WhatIf(WhatIfAccumulatorRow{});
      recorder->Probe({});
      recorder->Classes({});
      recorder->Confusion({});
      recorder->Losses({});
      recorder->Flush();
    }
    const SummaryFacts facts;
    CHECK(SummaryJson(facts, closed.run(), closed.layers()) ==
          SummaryJson(facts, open.run(), open.layers()));
    CHECK(closed.Sync().empty());
  }

  TEST_CASE("a resumed run's summary equals that of one that never stopped") {
    SummaryFacts facts;
    facts.name = "run";
    facts.epochs = 6;
    const TempFolder whole, resumed;
    Recorder uninterrupted(whole.path(), {});
    for (int step = 1; step <= 60; ++step) RunStep(uninterrupted, step);
    const std::string expected = SummaryJson(facts, uninterrupted.run(), uninterrupted.layers());
    for (const int stop : {1, 2, 7, 25, 30, 59}) {
      std::map<std::string, std::int64_t> lengths;
      {
        Recorder recorder(resumed.path(), {});
        for (int step = 1; step <= stop; ++step) RunStep(recorder, step);
        lengths = recorder.Sync();
        for (int step = stop + 1; step <= stop + 9; ++step) RunStep(recorder, step);
      }
      Recorder recorder(resumed.path(), lengths);
      CHECK(recorder.earlier_seconds() == doctest::Approx(1.5 * (stop / 3)));
      for (const TensorTotals& tensor : recorder.layers().tensors()) {
        // Stats() of the last logged step, a multiple of three.
        const int last = stop / 3 * 3;
        const double nonzero = 1000 + last - last * 7 % 11;
        CHECK(tensor.last_pct == 100.0 * (last * 13 % 17) / nonzero);
        CHECK(recorder.layers().FindTensor(tensor.layer, "dx") == &tensor);
      }
      for (int step = stop + 1; step <= 60; ++step) RunStep(recorder, step);
      CHECK(SummaryJson(facts, recorder.run(), recorder.layers()) == expected);
    }
  }

  TEST_CASE("started afresh over an old run its dumped steps are gone; other files stay") {
    const TempFolder folder;
    const std::vector<std::string> foreign = {
        "step-.safetensors", "step-1a.safetensors", "step-00000001.safetensors.bak",
        "notes.txt",         "fc.safetensors",      "step-7.json"};
    const auto dump = [&] {
      folder.Write("dump/step-00000001.safetensors", "values");
      folder.Write("dump/step-123456789.safetensors", "values");
    };
    dump();
    std::map<std::string, std::int64_t> lengths;
    {
      Recorder recorder(folder.path(), {});
      CHECK_FALSE(folder.Has("dump"));  // nothing was left in it
      dump();
      lengths = recorder.Sync();
    }
    { const Recorder recorder(folder.path(), lengths); }  // resumed
    CHECK(folder.Has("dump/step-00000001.safetensors"));
    for (const std::string& name : foreign) folder.Write("dump/" + name, "mine");
    { const Recorder recorder(folder.path(), {}); }
    CHECK_FALSE(folder.Has("dump/step-00000001.safetensors"));
    CHECK_FALSE(folder.Has("dump/step-123456789.safetensors"));
    for (const std::string& name : foreign) CHECK(folder.Read("dump/" + name) == "mine");
  }

  TEST_CASE("a damaged row is named") {
    const TempFolder folder;
    std::map<std::string, std::int64_t> lengths;
    {
      Recorder recorder(folder.path(), {});
      for (int step = 1; step <= 9; ++step) RunStep(recorder, step);
      lengths = recorder.Sync();
    }
    std::string text = folder.Read("underflow.csv");
    text.replace(text.find(",fp16,") + 1, 4, "fp,6");
    folder.Write("underflow.csv", text);
    const std::string message =
        folder / "underflow.csv" + ":2: 28 fields, expected the header's 27";
    CHECK_THROWS_WITH_AS(Recorder(folder.path(), lengths), message.c_str(), ada::DataError);
  }
}
