// summary.json and the text at the end of a run.
#include "telemetry/summary.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "error.h"
#include "io/shown_text.h"
#include "temp_folder.h"

using namespace ada::telemetry;
using ada::TensorStats;
using ada::scaling::Limit;
using ada::testing::TempFolder;

namespace {

TensorStats Stats(std::int64_t underflow) {
  TensorStats stats;
  stats.numel = 2000;
  stats.zeros_before = 1000;
  stats.underflow = underflow;
  stats.overflow = 1;
  stats.full = true;
  return stats;
}

SummaryFacts Facts() {
  return {.name = "demo",
          .folder = "runs/demo",
          .status = RunStatus::kFinished,
          .model = "resnet20",
          .dataset = "cifar10",
          .format = "fp16",
          .policy = "adaptive",
          .device = "cpu",
          .epochs = 2,
          .seconds = 125,
          .images_per_second = 541.4,
          .uncounted = {"y", "w"},
          .processor = "a processor",
          .threads = 2,
          .versions = {{"ada-train", "0.1.0"}, {"oneDNN", "2.6.3"}}};
}

RunTotals Run() {
  RunTotals run;
  run.Add(StepRow{1, 1, 2, 0.25, 0.1, 1, false, false, 1});
  run.Add(StepRow{2, 2, NAN, 0.25, 0.1, 1, true, true, 1});
  run.Add(StepRow{3, 2, 1.5, 0.5, 0.1, 1, false, false, 1});
  run.Add(EvaluationRow{1, 1, "test", 100, 1.25, 0.8125, 1});
  run.Add(EvaluationRow{3, 2, "test", 100, 1.125, 0.75, 0.9375});
  return run;
}

// A language model's evaluations, the smaller loss first.
RunTotals TextRun() {
  RunTotals run;
  run.DecideByLoss(true);
  run.Add(StepRow{1, 1, 2, 0.25, 0.1, 1, false, false, 1});
  run.Add(EvaluationRow{1, 1, "validation", 100, 1.75, 0.375, 0.75});
  run.Add(EvaluationRow{3, 2, "validation", 100, 2, 0.5, 0.875});
  return run;
}

LayerTotals Layers() {
  LayerTotals layers;
  layers.AddUnderflow("loss", "dx", 1, Stats(1));
  layers.AddUnderflow("fc", "dx", 16, Stats(20));
  layers.AddUnderflow("fc", "dw", 1, Stats(5));
  layers.AddUnderflow("bn2", "dx", 16, Stats(30));
  layers.AddUnderflow("conv2", "dx", 128, Stats(100));
  layers.AddUnderflow("relu1", "dy", 64, Stats(40));
  layers.AddUnderflow("conv1", "dx", 128, Stats(2));
  layers.AddUnderflow("conv0", "dx", 128, Stats(0));
  layers.AddScale("fc", {1, 100, 16, 16, 16, 16, Limit::kScaleBound});
  layers.AddScale("conv2", {16, 9.5, 9.5, 8, 8, 128, Limit::kTarget});
  layers.AddScale("relu1", {128, NAN, NAN, NAN, 1, 64, Limit::kBranch});
  layers.AddScale("conv1", {128, 1, 1, 1, 1, 128, Limit::kOne});
  return layers;
}

std::vector<std::string> LinesOf(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("language: losses in nats, perplexity, bits a byte, tokens a second") {
    SummaryFacts facts = Facts();
    facts.tokens = 128;
    const std::string text = SummaryText(facts, TextRun(), {});
    CHECK(text.find(" in 2:05, 69299 tokens/s\n") != std::string::npos);
    CHECK(text.find("\n  validation loss 2, perplexity 7.389, accuracy 50.00 % (best loss 1.75 in "
                    "epoch\n    1)\n") != std::string::npos);
    CHECK(
        text.find("\n  training loss 2, perplexity 7.389, accuracy 25.00 % (mean of epoch 1)\n") !=
        std::string::npos);
    facts.bytes = true;
    CHECK(SummaryText(facts, TextRun(), {}).find("\n  training loss 2, 2.885 bits per byte, ") !=
          std::string::npos);
    CHECK(SummaryText(facts, TextRun(), {})
              .find("validation loss 2, 2.885 bits per byte, perplexity 7.389, accuracy") !=
          std::string::npos);
    const auto json = nlohmann::json::parse(SummaryJson(facts, TextRun(), {}));
    const auto& validation = json["evaluation"]["validation"];
    CHECK(validation["perplexity"] == doctest::Approx(std::exp(2)));
    CHECK(validation["bits_per_byte"] == doctest::Approx(2 / std::log(2)));
    CHECK(validation["best"]["loss"] == 1.75);
    CHECK(json["tokens_per_second"] == doctest::Approx(541.4 * 128));
  }

  TEST_CASE("operands that saturate are told apart from tensors that overflow") {
    LayerTotals layers = Layers();
    layers.AddUnderflow("fc", "forward.w", 1, Stats(5));
    const std::string text = SummaryText(Facts(), Run(), layers);
    CHECK(text.find("\n8 tensors overflowed or held inf or NaN in logged steps (see "
                    "underflow.csv)\n1 operand saturated or held inf or NaN in logged steps (see "
                    "underflow.csv)\n") != std::string::npos);
  }

  TEST_CASE("the text") {
    CHECK(SummaryText(Facts(), Run(), Layers()) ==
          R"(run demo finished: 2 epochs, 3 steps (1 skipped) in 2:05, 541 images/s
  test accuracy 75.00 %, loss 1.125 (best 81.25 % in epoch 1)
  training accuracy 50.00 %, loss 1.5 (mean of epoch 2)
8 tensors overflowed or held inf or NaN in logged steps (see underflow.csv)
layers that lose most (share of their values other than zero, mean of 1 logged
  step; last scale)
  layer  tensor  lost      at most   scale  alpha  why
  conv2  dx      10.100 %  10.100 %  128    8      target: the value computed
                                                   for underflow_target
  relu1  dy      4.100 %   4.100 %   64     -      branch: gradients of several
                                                   layers brought to one scale
  bn2    dx      3.100 %   3.100 %   16     -      passes on the scale it is
                                                   given
  fc     dx      2.100 %   2.100 %   16     16     SB: held at scale_upper_bound
                                                   16
  conv1  dx      0.300 %   0.300 %   128    1      one: computed to need no
                                                   factor
counted: dx, dy and dw, 1 of 3 steps; not counted: y and w (log.statistics)
1 step skipped because gradients were not finite:
  events.csv names layer and tensor
files: runs/demo
  underflow.csv scales.csv steps.csv evaluation.csv events.csv summary.json
  log.txt config.yaml checkpoints/)");
    for (const std::string text = SummaryText(Facts(), Run(), Layers());
         const std::string& line : LinesOf(text))
      CHECK(line.size() <= 80);
  }

  TEST_CASE("long names: every line has its 80 columns, in colors too") {
    SummaryFacts facts = Facts();
    facts.name = "a_name_that_says_what_the_run_was_for";
    facts.tokens = 128, facts.bytes = true;
    LayerTotals layers;
    const std::string name = "encoder.layers.encoder_layer_11.self_attention.out_proj";
    layers.AddUnderflow(name, "dx", 1.0 / 3, Stats(999));
    layers.AddUnderflow(name, "update.in_proj_weight", 1, Stats(999));
    layers.AddUnderflow("fc", "dw", 1, Stats(5));
    for (int i = 0; i < 30; ++i)
      layers.AddUnderflow("layer" + std::to_string(i), "dx", 1, Stats(1000));
    const std::vector<std::string> lines = LinesOf(SummaryText(facts, TextRun(), layers));
    for (const std::string& line : lines) CHECK_MESSAGE(line.size() <= 80, line);
    CHECK(std::count(lines.begin(), lines.end(), "  " + name) == 1);  // of updates
    std::istringstream colored(SummaryText(facts, TextRun(), layers, true));
    for (std::string line; std::getline(colored, line);) CHECK(ada::TextWidth(line) <= 80);
  }

  TEST_CASE("a run that ends within an epoch says so, instead of the epochs before") {
    SummaryFacts facts = Facts();
    facts.epochs = 1;
    CHECK(SummaryText(facts, Run(), Layers())
              .starts_with("run demo finished in epoch 2: 3 steps (1 skipped) in 2:05, 541 "));
  }

  TEST_CASE("in colours: the same text; red from half of the values on, yellow from a tenth") {
    LayerTotals layers = Layers();
    layers.AddUnderflow("fc9", "dx", 1, Stats(600));
    layers.AddUnderflow("a\x1b[2J", "dx", 1, Stats(900));
    const std::string colored = SummaryText(Facts(), Run(), layers, true);
    for (const char* part :
         {"run demo \033[32mfinished\033[0m: ", "accuracy \033[1m75.00 %\033[0m, ",
          "\033[31m60.100 %\033[0m  \033[31m60.100 %\033[0m  ", "\033[33m10.100 %\033[0m",
          "\n\033[33m1 step skipped\033[0m because", "  a\\x1b[2J  "})
      CHECK_MESSAGE(colored.find(part) != std::string::npos, part);
    std::string plain = colored;
    for (std::size_t at; (at = plain.find('\033')) != std::string::npos;)
      plain.erase(at, plain.find('m', at) - at + 1);
    CHECK(plain == SummaryText(Facts(), Run(), layers));
  }

  TEST_CASE("the text names the files that only some runs have, where they exist") {
    const TempFolder folder;
    SummaryFacts facts = Facts();
    facts.folder = folder.path();
    const auto end = [&] {
      const std::string text = SummaryText(facts, Run(), Layers());
      return text.substr(text.find(" checkpoints/") + 13);
    };
    CHECK(end() == "");
    std::filesystem::create_directories(folder / "dump");  // empty
    folder.Write("probes.csv", "step,epoch\n");
    CHECK(end() == "\n  probes.csv");
    folder.Write("histograms.csv", "step,epoch\n");
    folder.Write("what_if.csv", "step,epoch\n");
    folder.Write("dump/step-00000001.safetensors", "values");
    folder.Write("tensorboard/events.out.tfevents.1.a.2.0", "events");
    CHECK(end() == "\n  histograms.csv what_if.csv probes.csv dump/ tensorboard/");
  }

  TEST_CASE(
      "a first evaluation that is NaN is not the best for good, and no later one becomes it") {
    for (const bool by_loss : {false, true}) {
      CAPTURE(by_loss);
      RunTotals run;
      run.DecideByLoss(by_loss);
      run.Add(EvaluationRow{1, 1, "test", 100, NAN, NAN, NAN});
      CHECK(run.evaluations()[0].best.step == 1);
      run.Add(EvaluationRow{2, 2, "test", 100, 2, 0.25, 0.5});
      CHECK(run.evaluations()[0].best.step == 2);
      run.Add(EvaluationRow{3, 3, "test", 100, NAN, NAN, NAN});
      CHECK(run.evaluations()[0].best.step == 2);
      run.Add(EvaluationRow{4, 4, "test", 100, 1, 0.5, 0.5});
      CHECK(run.evaluations()[0].best.step == 4);
    }
  }

  TEST_CASE("operands: those without S have no reason of a scale, dy's have that of its branches") {
    const auto row = [](const char* layer, const char* tensor) {
      LayerTotals layers = Layers();
      layers.AddUnderflow(layer, tensor, 1, Stats(900));
      for (const std::string& line : LinesOf(SummaryText(Facts(), Run(), layers)))
        if (line.find(std::string(layer) + " ") == 2) return line;
      return std::string();
    };
    for (const char* layer : {"fc", "relu1"})
      for (const char* tensor : {"forward.x", "forward.w", "dx.w", "dw.x"})
        CHECK(row(layer, tensor).ends_with("  -      carries no scale"));
    for (const char* tensor : {"dx.dy", "dw.dy"}) {
      CHECK(row("fc", tensor).find("passes on the scale") != std::string::npos);
      CHECK(row("relu1", tensor).find("branch: gradients of") != std::string::npos);
    }
  }

  TEST_CASE("a NaN is written without its sign") {
    RunTotals run;
    run.Add(EvaluationRow{1, 1, "test", 100, -NAN, -NAN, 0});
    CHECK(SummaryText(Facts(), run, LayerTotals()).find("\n  test accuracy nan %, loss nan") !=
          std::string::npos);
  }

  TEST_CASE("the text of a run without anything") {
    SummaryFacts facts = Facts();
    facts.status = RunStatus::kInterrupted;
    facts.epochs = 0;
    facts.images_per_second = 0;
    CHECK(SummaryText(facts, RunTotals(), LayerTotals())
              .starts_with("run demo interrupted: 0 epochs, 0 steps (0 skipped) in 2:05\n"
                           "what tensors lose was not counted (log.every, log.statistics)\nfiles: "
                           "runs/demo\n"));
    LayerTotals clean;
    TensorStats finite = Stats(0);
    finite.overflow = finite.inf = finite.nan = 0;
    clean.AddUnderflow("fc", "dx", 1, finite, "", 1);
    CHECK(SummaryText(facts, RunTotals(), clean)
              .find("\nno value was lost of dx, 1 of 1 step; not counted: y and w "
                    "(log.statistics)\n") != std::string::npos);
    // A value that left the range is lost as one that became zero is.
    clean.AddUnderflow("fc", "forward.w", 1, Stats(0));
    CHECK(SummaryText(facts, RunTotals(), clean).find("fc     forward.w  0.100 %  0.100 %") !=
          std::string::npos);
  }

  TEST_CASE("every limit has its words") {
    ScaleTotals scale;
    scale.last_scale_in = 256;
    scale.last_bound = 4;
    const std::vector<std::pair<Limit, const char*>> cases = {
        {Limit::kNone, "none: passes on the scale 256"},
        {Limit::kTarget, "target: the value computed for underflow_target"},
        {Limit::kOne, "one: computed to need no factor"},
        {Limit::kCap, "cap: a larger factor could overflow"},
        {Limit::kScaleBound, "SB: held at scale_upper_bound 4"},
        {Limit::kAccumBound, "AB: held at accum_upper_bound / scale_in 4"},
        {Limit::kStale, "stale: the value of an earlier step (update_interval)"},
        {Limit::kFixed, "fixed: the constant of the layer"},
        {Limit::kState, "state: the layer's own scale (layerwise_dynamic, total_scale)"},
        {Limit::kNonfinite, "nonfinite: the gradient was not finite, the step was skipped"},
        {Limit::kBranch, "branch: gradients of several layers brought to one scale"},
    };
    for (const auto& [limit, words] : cases) {
      scale.last_limit = ada::scaling::LimitName(limit);
      CHECK(ExplainLimit(scale) == words);
    }
  }

  TEST_CASE("summary.json") {
    const TempFolder folder;
    SummaryFacts facts = Facts();
    facts.folder = folder.path();
    WriteSummary(facts, Run(), Layers());
    const auto json = nlohmann::json::parse(folder.Read("summary.json"));
    CHECK(json["name"] == "demo");
    CHECK(json["status"] == "finished");
    CHECK(json["model"] == "resnet20");
    CHECK(json["policy"] == "adaptive");
    CHECK(json["epochs"] == 2);
    CHECK(json["steps"] == 3);
    CHECK(json["skipped"] == 1);
    const auto& counted = json["counted"];
    CHECK(counted["of"] == nlohmann::json{"dx", "dy", "dw"});
    CHECK(counted["not"] == nlohmann::json{"y", "w"});
    CHECK(counted["logged_steps"] == 1);
    CHECK(counted["lost_most"]["layer"] == "conv2");
    CHECK(counted["lost_most"]["pct_mean"].get<double>() == doctest::Approx(10.1));
    CHECK(counted["text"] ==
          "conv2.dx lost most, 10.100 % on the mean, 10.100 % at most, of dx, dy and dw, 1 of 3 "
          "steps; not counted: y and w (log.statistics)");
    CHECK(json["train"] == nlohmann::json{{"epoch", 2}, {"loss", 1.5}, {"accuracy", 0.5}});
    CHECK(json["evaluation"]["test"]["top1"] == 0.75);
    CHECK(json["evaluation"]["test"]["best"]["top1"] == 0.8125);
    CHECK(json["evaluation"]["test"]["best"]["epoch"] == 1);
    const auto& conv2 = json["layers"]["conv2"];
    CHECK(conv2["dx"] == nlohmann::json{{"rows", 1},
                                        {"numel", 2000},
                                        {"zeros_before", 1000},
                                        {"underflow", 100},
                                        {"overflow", 1},
                                        {"underflow_pct_nonzero_mean", 10.0},
                                        {"underflow_pct_nonzero_max", 10.0},
                                        {"lost_pct_mean", 10.1},
                                        {"lost_pct_max", 10.1},
                                        {"last_scale", 128.0}});
    CHECK(conv2["alpha"] == nlohmann::json{{"rows", 1},
                                           {"last_scale_in", 16.0},
                                           {"last_scale_out", 128.0},
                                           {"last_alpha", 8.0},
                                           {"last_limit", "target"},
                                           {"limits", {{"target", 1}}}});
    CHECK(json["layers"]["relu1"]["branch"]["last_scale_out"] == 64.0);
    CHECK_FALSE(json["layers"]["relu1"]["branch"].contains("last_alpha"));
    CHECK(json["seconds"] == 125);
    CHECK(json["versions"]["oneDNN"] == "2.6.3");
    CHECK(json["host"] ==
          nlohmann::json{{"processor", "a processor"}, {"threads", 2}, {"device", "cpu"}});
  }

  TEST_CASE("summary.json of a run without a step is JSON still; an unwritable folder") {
    const std::string text = SummaryJson({}, RunTotals(), LayerTotals());
    const auto json = nlohmann::json::parse(text);
    CHECK(json["train"]["loss"].is_null());
    CHECK(json["layers"].empty());
    SummaryFacts nowhere;
    nowhere.folder = "/nonexistent/folder";
    CHECK_THROWS_AS(WriteSummary(nowhere, RunTotals(), LayerTotals()), ada::OutputError);
    CHECK_FALSE(CpuModel().empty());
    CHECK(std::string(RunStatusName(RunStatus::kStopped)) == "stopped");
  }
}
