// Operands of several ranks: scales of a tensor are of all of it, counts of all of its blocks, and
// what is written of it is what one process writes. On the CPU.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "parallel/compare_runs.h"

namespace ada::testing {
namespace {

// The parts of a batch of two and three ranks are whole blocks of 32 images: those of one process.
constexpr char kOperandNetwork[] = R"(
seed: 7
device: {kind: cpu, threads: 1}
data:
  dataset: synthetic
  synthetic: {height: 8, width: 8, channels: 3, classes: 5, train: 192, test: 12}
  batch_size: 192
  shuffle: false
model:
  classes: 5
  layers:
    - {name: conv1, kind: conv2d, channels: 16, kernel: 3, padding: 1}
    - {name: relu1, kind: relu}
    - {name: conv2, kind: conv2d, channels: 8, kernel: 1}
    - {name: fc, kind: linear, features: 5}
scaling: {policy: fixed, scale: 64}
optimizer: {kind: sgd, lr: 0.01, momentum: 0.9}
train: {max_steps: 5, epochs: 5}
checkpoint: {every_steps: 2}
log: {every: 1, statistics: [operands], histogram_every: 1, dump_every: 1,
      what_if: [{format: nvfp4}, {format: mxfp8_e5m2}]}
)";

std::string WithPrecision(const std::string& precision) {
  return kOperandNetwork + ("precision: " + precision + "\n");
}

// For step 1, whose weights are the same: counts exactly, sums to the order of their parts.
void SameInStepOne(const std::string& one, const std::string& other, const std::string& file) {
  const Table a = RowsWhere(ReadCsv(one + "/" + file), "step", "1");
  const Table b = RowsWhere(ReadCsv(other + "/" + file), "step", "1");
  REQUIRE(a.size() == b.size());
  REQUIRE(!a.empty());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CAPTURE(a[i].at("layer"));
    CAPTURE(a[i].at("tensor"));
    for (const auto& [column, value] : a[i]) {
      CAPTURE(column);
      // A gradient after a product whose sums are in another order may differ in its last bits.
      const bool exact = a[i].at("tensor").find("dy") == std::string::npos ||
                         a[i].at("layer") == "fc" || column == "numel" || column == "blocks";
      if (exact && column != "sqnr_db" && column != "sqnr_mean_db" && column != "norm_over_noise" &&
          column.find("mean") == std::string::npos && column.find("std") == std::string::npos &&
          column != "l1" && column != "l2")
        CHECK(value == b[i].at(column));
      else if (!value.empty() && column != "mse" &&
               value.find_first_of("ni") == std::string::npos &&
               value.find_first_not_of("0123456789.e+-") == std::string::npos)
        CHECK(NumberIn(a[i], column) == doctest::Approx(NumberIn(b[i], column)).epsilon(2e-2));
    }
  }
}

TEST_SUITE("cpu") {
  TEST_CASE("operands of several ranks: counts, scales and what-ifs of one process") {
    for (const char* precision :
         {"{format: bf16, operands: nvfp4}",
          "{format: bf16, operands: {element: fp4_e2m1, scale: fp8_e4m3, tensor_scale: row}}",
          "{format: fp32, operands: {x: mxfp8_e4m3, w: mxfp8_e4m3, dy: mxfp8_e5m2}}",
          "{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, tensor_scaling: "
          "current}}"}) {
      CAPTURE(precision);
      const TempFolder folder;
      const std::string text = WithPrecision(precision);
      MustTrain(text, folder / "one", 1, {.on_cpu = true});
      for (const int ranks : {2, 3}) {
        CAPTURE(ranks);
        const std::string shared = folder / std::to_string(ranks);
        MustTrain(text, shared, ranks, {.on_cpu = true});
        CompareLosses(folder / "one", shared, 1e-6, 2e-3);
        SameInStepOne(folder / "one", shared, "underflow.csv");
        SameInStepOne(folder / "one", shared, "what_if_blocks.csv");
        if (std::string(precision).find("tensor_scaling") == std::string::npos)
          SameInStepOne(folder / "one", shared, "blocks.csv");
      }
    }
  }

  TEST_CASE("block scales of a dump are those of one process") {
    const TempFolder folder;
    const std::string text = WithPrecision("{format: bf16, operands: nvfp4}");
    for (const int ranks : {1, 2, 3})
      MustTrain(text, folder / std::to_string(ranks), ranks,
                {.overrides = {{"train.max_steps", "1"}}, .on_cpu = true});
    const std::string file = "/dump/step-00000001.safetensors";
    const auto one = SafetensorsFile::Open(folder / "1" + file);
    for (const std::string ranks : {"2", "3"}) {
      const auto shared = SafetensorsFile::Open(folder / ranks + file);
      for (const char* tensor : {"conv1.forward.x", "conv1.forward.w", "conv1.dw.x", "fc.forward.x",
                                 "fc.dw.x", "fc.dx.dy", "fc.dw.dy", "fc.dx.w"}) {
        CAPTURE(tensor);
        const std::string name = std::string(tensor) + ".scales";
        REQUIRE(one.Find(name) != nullptr);
        REQUIRE(shared.Find(name) != nullptr);
        CHECK(one.Find(name)->shape == shared.Find(name)->shape);
        CHECK(one.ReadF32(name) == shared.ReadF32(name));
        CHECK(one.metadata().at("amax:" + name) == shared.metadata().at("amax:" + name));
      }
    }
  }

  TEST_CASE("scales with a history, and switches: the same ranks give the same bytes, and go on") {
    const TempFolder folder;
    const std::string text = WithPrecision(
        "{format: bf16, operands: {x: fp8_e4m3, w: fp8_e4m3, dy: fp8_e5m2, tensor_scaling: {kind: "
        "delayed, history: 3}}, schedule: [{from_step: 4, recipe: te_nvfp4}]}");
    MustTrain(text, folder / "a", 3, {.on_cpu = true});
    for (const std::string steps : {"1", "2", "3", "4"}) {
      CAPTURE(steps);
      const std::string cut = folder / ("cut" + steps);
      MustTrain(text, cut, 3, {.overrides = {{"train.max_steps", steps}}, .on_cpu = true});
      MustTrain(text, cut, 3, {.resume = true, .on_cpu = true});
      std::vector<std::string> different = DifferentFiles(folder / "a", cut);
      std::erase(different, "evaluation.csv");  // a row more for the earlier end
      CHECK(different == std::vector<std::string>{});
    }
    const Table events = RowsWhere(ReadCsv(folder / "a/events.csv"), "event", "precision");
    REQUIRE(events.size() == 1);
    CHECK(events[0].at("step") == "4");
    MustTrain(text, folder / "one", 1, {.on_cpu = true});
    CompareLosses(folder / "one", folder / "a", 1e-6, 5e-3);
    // The history is of the whole tensor: every rank has the scale of one process.
    const auto scales = [&](const std::string& run) {
      std::vector<std::string> all;
      for (const GoldenRow& row : RowsWhere(ReadCsv(run + "/underflow.csv"), "step", "2"))
        if (row.at("tensor") == "forward.x" || row.at("layer") == "fc")
          all.push_back(row.at("scale"));
      return all;
    };
    CHECK(scales(folder / "one") == scales(folder / "a"));
  }
}

}  // namespace
}  // namespace ada::testing
