// Keys that decide what is written and how the loss and the update are made: seen in the files of
// small runs.
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;
using Names = std::vector<std::string>;

// Trains the small run with `settings` into "run" and returns its folder.
std::string Train(const TempFolder& folder, const Arguments& settings) {
  Arguments arguments = With(WriteConfig(folder, "run", SmallRun()), {"--overwrite"});
  for (const std::string& setting : settings) arguments = With(arguments, {"--set", setting});
  ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
  return folder / "run";
}

std::vector<std::string> Column(const Table& table, const std::string& name) {
  std::vector<std::string> values;
  for (const GoldenRow& row : table) values.push_back(row.at(name));
  return values;
}

// The trained tensors of the newest checkpoint.
std::map<std::string, std::vector<float>> Weights(const std::string& run) {
  const SafetensorsFile file = SafetensorsFile::Open(NewestCheckpoint(run));
  std::map<std::string, std::vector<float>> weights;
  for (const TensorEntry& entry : file.entries())
    if (!Contains(entry.name, "running_") && !entry.name.starts_with("optimizer."))
      weights[entry.name] = file.ReadF32(entry.name);
  return weights;
}

TEST_SUITE("cpu") {
  TEST_CASE("checkpoint.every_steps, every_epochs and keep") {
    struct Case {
      Arguments settings;  // epochs of six steps
      Names kept;
    };
    const Case cases[] = {
        {{"train.epochs=2", "checkpoint={every_steps: 4, keep: 100, best: false}"},
         {"step-00000004.json", "step-00000006.json", "step-00000008.json", "step-00000012.json"}},
        {{"train.epochs=2", "checkpoint={every_steps: 4, keep: 2, best: false}"},
         {"step-00000008.json", "step-00000012.json"}},
        {{"train.epochs=4", "checkpoint={every_epochs: 3, keep: 9, best: false}"},
         {"step-00000018.json", "step-00000024.json"}},
        {{"train.max_steps=9", "checkpoint={every_epochs: 0, best: false}"},
         {"step-00000009.json"}},
    };
    const TempFolder folder;
    for (const Case& c : cases) {
      CAPTURE(c.settings.back());
      const std::string run = Train(folder, c.settings);
      CHECK(Checkpoints(run, ".json") == c.kept);
      CHECK(Checkpoints(run, ".safetensors").size() == c.kept.size());
      CHECK(!std::filesystem::exists(run + "/checkpoints/best.json"));
    }
  }

  TEST_CASE("checkpoint.best is the first of the best validations; evaluate repeats its row") {
    const TempFolder folder;
    const std::string run = Train(folder, {});
    const Table validations = RowsWhere(ReadCsv(run + "/evaluation.csv"), "split", "validation");
    REQUIRE(validations.size() == 8);
    GoldenRow best = validations.front();
    for (const GoldenRow& row : validations)
      if (Number(row, "top1") > Number(best, "top1")) best = row;
    const auto state = nlohmann::json::parse(ReadBytes(run + "/checkpoints/best.json"));
    CHECK(state.at("step") == std::stoi(best.at("step")));
    CHECK(Summary(run).at("evaluation").at("validation").at("best").at("step") == state.at("step"));

    for (const std::string file :
         {"run/checkpoints/best.safetensors", "run/checkpoints/step-00000048.json"}) {
      CAPTURE(file);
      const Outcome o = Run({"evaluate", "--checkpoint", file, "--threads", "1"}, folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      folder.Write("evaluate.csv", o.out);
      const std::string step = Contains(file, "best") ? best.at("step") : "48";
      const Table rows = RowsWhere(ReadCsv(run + "/evaluation.csv"), "step", step),
                  now = ReadCsv(folder / "evaluate.csv");
      REQUIRE(now.size() == 2);
      for (std::size_t i = 0; i < 2; ++i)
        for (const auto& [column, value] : now[i]) {
          CAPTURE(column);
          CHECK((column == "split" ? value == rows[i].at(column)
                                   : Number(now[i], column) == Number(rows[i], column)));
        }
    }
    // The same with the configuration given, and another evaluation batch.
    const Outcome o = Run({"evaluate", "--config", "run.yaml", "--checkpoint",
                           "run/checkpoints/step-00000048.safetensors"},
                          folder.path());
    CHECK(o.out == ReadBytes(folder / "evaluate.csv"));
  }

  TEST_CASE("evaluate.every_epochs, and one at the end") {
    const TempFolder folder;
    auto steps = [&](const Arguments& settings) {
      return Column(
          RowsWhere(ReadCsv(Train(folder, settings) + "/evaluation.csv"), "split", "test"), "step");
    };
    CHECK(steps({"train.epochs=5", "evaluate.every_epochs=2"}) == Names{"12", "24", "30"});
    CHECK(steps({"train.epochs=2", "evaluate.every_epochs=0"}) == Names{"12"});
    CHECK(steps({"train.max_steps=8"}) == Names{"6", "8"});
  }

  TEST_CASE("log.every and log.statistics") {
    const TempFolder folder;
    const std::string run =
        Train(folder, {"train.epochs=1", "log.every=4", "log.statistics=[y, dw]"});
    const Table rows = ReadCsv(run + "/underflow.csv");
    const Names tensors = Column(rows, "tensor"), logged = Column(rows, "step");
    CHECK(std::set<std::string>(tensors.begin(), tensors.end()) ==
          std::set<std::string>{"dw", "y"});
    CHECK(std::set<std::string>(logged.begin(), logged.end()) == std::set<std::string>{"1", "4"});
    CHECK(Column(ReadCsv(run + "/timing.csv"), "step") == Names{"1", "4"});
    CHECK(ReadCsv(run + "/steps.csv").size() == 6);
    const std::string never = Train(folder, {"train.epochs=1", "log.every=0"});
    CHECK(ReadCsv(never + "/underflow.csv").empty());
    CHECK(ReadCsv(never + "/scales.csv").empty());
    CHECK(ReadCsv(never + "/steps.csv").size() == 6);
  }

  TEST_CASE("drop_last: false trains on the tail as well") {
    const TempFolder folder;  // 130 images, 10 held back, batches of 50
    const Arguments settings = {"train.epochs=1", "train.accumulate=1", "data.batch_size=50",
                                "log.every=1", "log.statistics=[dx]"};
    CHECK(ReadCsv(Train(folder, settings) + "/steps.csv").size() == 2);
    const std::string run = Train(folder, With(settings, {"data.drop_last=false"}));
    const Table loss = RowsWhere(ReadCsv(run + "/underflow.csv"), "layer", "loss");
    CHECK(Column(loss, "numel") == Names{"500", "500", "200"});
    // In two parts of 25: the tail of 20 fills the first.
    const std::string parts =
        Train(folder, With(settings, {"data.drop_last=false", "train.accumulate=2"}));
    const Table again = RowsWhere(ReadCsv(parts + "/underflow.csv"), "layer", "loss");
    CHECK(Column(again, "numel") == Names{"500", "500", "200"});
  }

  TEST_CASE("clip_norm: the update has that norm, grad_norm is of before") {
    // Plain SGD: one step at lr 2 leads past one at lr 1 by the gradient that was applied.
    const TempFolder folder;
    const Arguments one = {"train.max_steps=1", "precision.format=fp32", "scaling={policy: none}"};
    for (const double limit : {0.0, 0.125, 1e6}) {
      CAPTURE(limit);
      const Arguments clipped = With(one, {"train.clip_norm=" + std::to_string(limit)});
      const std::string run = Train(folder, With(clipped, {"optimizer={kind: sgd, lr: 1}"}));
      const double norm = Number(ReadCsv(run + "/steps.csv").at(0), "grad_norm");
      REQUIRE(norm > 0.2);
      const std::map<std::string, std::vector<float>> near = Weights(run);
      const std::map<std::string, std::vector<float>> far =
          Weights(Train(folder, With(clipped, {"optimizer={kind: sgd, lr: 2}"})));
      double square = 0;
      for (const auto& [name, values] : near)
        for (std::size_t i = 0; i < values.size(); ++i)
          square += std::pow(static_cast<double>(values[i]) - far.at(name)[i], 2);
      CHECK(std::sqrt(square) == doctest::Approx(limit == 0.125 ? limit : norm).epsilon(1e-4));
    }
  }

  TEST_CASE("concat, sigmoid and silu train in fp16; threads change no byte") {
    std::string text = SmallRun();
    const std::string before = "    - {name: join, kind: add, inputs: [conv2, relu1]}\n";
    const std::string join = R"(    - {name: smooth, kind: silu}
    - {name: gate, kind: sigmoid, inputs: [relu1]}
    - {name: join, kind: concat, inputs: [smooth, gate, relu1]}
)";
    text.replace(text.find(before), before.size(), join);
    const TempFolder folder;
    for (const char* threads : {"1", "3"}) {
      const Arguments arguments = With(WriteConfig(folder, threads, text),
                                       {"--set", std::string("device.threads=") + threads, "--set",
                                        "name=run", "--set", "log.statistics=[y, dx]"});
      ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
    }
    CHECK(Differences(folder / "1", folder / "3").empty());
    const Table steps = ReadCsv(folder / "1/steps.csv");
    CHECK(Number(steps.back(), "loss") < 0.9 * Number(steps.front(), "loss"));
    std::set<std::string> rounded;
    for (const GoldenRow& row : ReadCsv(folder / "1/underflow.csv"))
      if (row.at("layer") == "join" || row.at("layer") == "gate" || row.at("layer") == "smooth")
        rounded.insert(row.at("layer") + "." + row.at("tensor"));
    CHECK(rounded == std::set<std::string>{"join.y", "gate.y", "gate.dx", "smooth.y", "smooth.dx"});
  }

  TEST_CASE("decoders train in fp16 and fp8; threads change no byte") {
    std::string text = SmallRun();
    const std::string before = "    - {name: join, kind: add, inputs: [conv2, relu1]}\n";
    const std::string join = R"(    - {name: slope, kind: prelu, per_channel: true}
    - {name: small, kind: max_pool, kernel: 2}
    - {name: deep, kind: conv2d, channels: 8, kernel: 3, padding: 1, bias: false}
    - {name: norm, kind: batch_norm}
    - {name: act, kind: relu}
    - {name: up, kind: conv_transpose2d, channels: 8, kernel: 3, stride: 2, padding: 1, output_padding: 1, groups: 2}
    - {name: soft, kind: softplus}
    - {name: smooth, kind: upsample, mode: bilinear, align_corners: true, inputs: [small]}
    - {name: bend, kind: elu, alpha: 0.5}
    - {name: wide, kind: conv2d, channels: 16, kernel: 1, inputs: [small]}
    - {name: shuffle, kind: pixel_shuffle, scale: 2}
    - {name: joined, kind: concat, inputs: [soft, bend, shuffle]}
    - {name: one, kind: conv2d, channels: 8, kernel: 1}
    - {name: join, kind: add, inputs: [one, relu1]}
)";
    REQUIRE(text.find(before) != std::string::npos);
    text.replace(text.find(before), before.size(), join);
    const TempFolder folder;
    for (const std::string format : {"fp16", "fp8_e5m2"}) {
      CAPTURE(format);
      for (const std::string threads : {"1", "3"}) {
        const Arguments arguments =
            With(WriteConfig(folder, threads + format, text),
                 {"--set", "device.threads=" + threads, "--set", "name=run", "--set",
                  "precision.format=" + format, "--set", "scaling.policy=adaptive", "--set",
                  "log.statistics=[y, w, dw, dx]", "--set", "log.histogram_every=1"});
        ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
      }
      CHECK(Differences(folder / ("1" + format), folder / ("3" + format)).empty());
      const Table steps = ReadCsv(folder / ("1" + format + "/steps.csv"));
      CHECK(Number(steps.back(), "loss") < 0.9 * Number(steps.front(), "loss"));
    }
    std::map<std::string, std::set<std::string>> rounded;
    for (const GoldenRow& row : ReadCsv(folder / "1fp16/underflow.csv"))
      rounded[row.at("layer")].insert(row.at("tensor"));
    CHECK(rounded["up"] == std::set<std::string>{"w", "y", "dx", "dw"});
    CHECK(rounded["smooth"] == std::set<std::string>{"y", "dx"});
    CHECK(rounded["slope"] == std::set<std::string>{"y", "dx"});
    CHECK(rounded.count("shuffle") == 0);
    std::set<std::string> chooses;
    for (const GoldenRow& row : ReadCsv(folder / "1fp16/scales.csv"))
      chooses.insert(row.at("layer"));
    CHECK(chooses.count("up") == 1);
    CHECK(chooses.count("smooth") + chooses.count("slope") + chooses.count("soft") == 0);
  }

  TEST_CASE("gates, norms, factors and dropped images train in fp16; threads change no byte") {
    std::string text = SmallRun();
    const std::string before = "    - {name: join, kind: add, inputs: [conv2, relu1]}\n";
    const std::string join = R"(    - {name: norm, kind: layer_norm}
    - {name: smooth, kind: gelu}
    - {name: factor, kind: channel_scale, value: 0.5}
    - {name: depth, kind: stochastic_depth, rate: 0.2}
    - {name: squeeze, kind: global_avg_pool}
    - {name: gate, kind: hardsigmoid}
    - {name: gated, kind: multiply, inputs: [gate, depth]}
    - {name: groups, kind: group_norm, groups: 2}
    - {name: join, kind: add, inputs: [groups, relu1]}
)";
    text.replace(text.find(before), before.size(), join);
    const TempFolder folder;
    for (const char* threads : {"1", "3"}) {
      const Arguments arguments =
          With(WriteConfig(folder, threads, text),
               {"--set", std::string("device.threads=") + threads, "--set", "name=run", "--set",
                "log.statistics=[y, dx]", "--set", "log.histogram_every=1"});
      ADA_REQUIRE_EXIT(Run(arguments, folder.path()), 0);
    }
    CHECK(Differences(folder / "1", folder / "3").empty());
    const Table steps = ReadCsv(folder / "1/steps.csv");
    CHECK(Number(steps.back(), "loss") < 0.9 * Number(steps.front(), "loss"));
    std::set<std::string> rounded, binned;
    for (const GoldenRow& row : ReadCsv(folder / "1/underflow.csv"))
      if (row.at("layer") == "gated") rounded.insert(row.at("tensor"));
    for (const GoldenRow& row : ReadCsv(folder / "1/histograms.csv"))
      if (row.at("layer") == "gated") binned.insert(row.at("tensor"));
    CHECK(rounded == std::set<std::string>{"y", "dx", "dx2"});
    CHECK(binned == rounded);
    // What reads runs reads this one: S of dx2 is that of dx.
    for (const Arguments& read : {Arguments{"compare", folder / "1", folder / "3"},
                                  {"what-if", folder / "1", "--scale", "64"},
                                  {"what-if", folder / "1", "--policy", "adaptive"},
                                  {"recommend", folder / "1"}})
      ADA_REQUIRE_EXIT(Run(read, folder.path()), 0);
  }

  TEST_CASE("label smoothing raises the loss that can be reached") {
    // The least loss with smoothing e over K classes is the entropy of the smoothed target.
    const TempFolder folder;
    const Arguments settings = {"train.epochs=1", "precision.format=fp32",
                                "scaling={policy: none}"};
    const double plain = Number(ReadCsv(Train(folder, settings) + "/steps.csv").at(0), "loss");
    const Table smooth =
        ReadCsv(Train(folder, With(settings, {"train.label_smoothing=0.9"})) + "/steps.csv");
    const double hit = 0.1 + 0.9 / 10, miss = 0.9 / 10;
    const double least = -hit * std::log(hit) - 9 * miss * std::log(miss);
    CHECK(Number(smooth.at(0), "loss") != plain);
    for (const GoldenRow& row : smooth) CHECK(Number(row, "loss") >= least);
  }
}

}  // namespace
}  // namespace ada::testing
