// The moving average of the weights: against torch's lerp of each checkpoint, evaluated in addition
// to the weights, deciding about the best, and evaluated from a checkpoint.
#include <cmath>

#include "io/tensor_files/safetensors.h"
#include "run/evaluate/weights.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

const std::vector<std::string> kAverageKeys = {"--set", "train.ema={decay: 0.9, every: 2}",
                                               "--set", "checkpoint.every_steps=1",
                                               "--set", "checkpoint.keep=20",
                                               "--set", "train.epochs=2"};

std::string StepFile(const TempFolder& folder, int step) {
  char name[40];
  std::snprintf(name, sizeof name, "/step-%08d.safetensors", step);
  return folder / ("a/checkpoints" + std::string(name));
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("the average of a run is the lerp of its weights, every second update") {
    const TempFolder folder;
    ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "a", SmallRun()), kAverageKeys), folder.path()),
                     0);
    const auto first = SafetensorsFile::Open(StepFile(folder, 1));
    std::map<std::string, std::vector<float>> average;
    for (const TensorEntry& entry : first.entries())
      if (entry.name.starts_with("ema.")) average[entry.name] = first.ReadF32(entry.name);
    CHECK(average.size() == 9);  // weights, biases and running statistics
    for (int step = 2; step <= 12; ++step) {
      CAPTURE(step);
      const auto file = SafetensorsFile::Open(StepFile(folder, step));
      for (auto& [name, values] : average) {
        CAPTURE(name);
        const std::vector<float> weights = file.ReadF32(name.substr(4));
        const auto take = static_cast<float>(1 - 0.9);
        for (std::size_t i = 0; step % 2 == 0 && i < values.size(); ++i)
          values[i] += take * (weights[i] - values[i]);
        CHECK(file.ReadF32(name) == values);
      }
    }

    std::vector<std::string> splits;
    for (const GoldenRow& row : ReadCsv(folder / "a/evaluation.csv"))
      splits.push_back(row.at("split"));
    CHECK(splits == std::vector<std::string>{"validation", "validation_ema", "test", "test_ema",
                                             "validation", "validation_ema", "test", "test_ema"});
    const Table rows = ReadCsv(folder / "a/evaluation.csv");
    const auto loss_of = [&](const char* weights) {
      const Outcome o = Run({"evaluate", "a", "--set", std::string("evaluate.weights=") + weights},
                            folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      return o.out;
    };
    CHECK(loss_of("both").find(rows[7].at("loss")) != std::string::npos);
    CHECK(loss_of("ema") == loss_of("both"));
    CHECK(loss_of("trained").find(rows[6].at("loss")) != std::string::npos);
  }

  TEST_CASE("statistics of the average are computed under the scales that its tensors have then") {
    const TempFolder folder;
    const auto run = With(WriteConfig(folder, "a", SmallRun()), kAverageKeys);
    ADA_REQUIRE_EXIT(Run(With(run, {"--set", "evaluate.recompute_batch_norm=true", "--set",
                                    "precision={format: fp8_e4m3, tensor_scaling: delayed}"}),
                         folder.path()),
                     0);
    const Table rows = RowsWhere(ReadCsv(folder / "a/evaluation.csv"), "split", "test_ema");
    REQUIRE(rows.size() == 2);
    const Outcome o = Run({"evaluate", "a", "--set", "evaluate.weights=ema"}, folder.path());
    ADA_REQUIRE_EXIT(o, 0);
    CHECK_MESSAGE(o.out.find(rows[1].at("loss")) != std::string::npos, o.out);
  }

  TEST_CASE("what stays of the average") {
    config::EmaConfig ema;
    ema.decay = 0.99;
    CHECK(run::AverageKeep(ema, 1) == 0.99);
    ema.warmup = true;
    CHECK(run::AverageKeep(ema, 1) == 2.0 / 11);
    CHECK(run::AverageKeep(ema, 90) == 0.91);
    CHECK(run::AverageKeep(ema, 100000) == 0.99);
  }
}

}  // namespace ada::testing
