// A run that several ranks share computes what one process computes: the same images, losses to the
// order of sums, counts, scales. The truth is the run of one process.
#include <doctest/doctest.h>

#include <cmath>
#include <filesystem>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "parallel/compare_runs.h"
#include "train/made_up_sets.h"

namespace ada::testing {
namespace {

constexpr char kBroken[] = R"(
device: {kind: cpu, threads: 1}
data: {dataset: folder, batch_size: 4, workers: 0, on_broken: skip, shuffle: false}
model:
  layers:
    - {name: conv, kind: conv2d, channels: 4, kernel: 3, padding: 1}
    - {name: bn, kind: batch_norm}
    - {name: relu, kind: relu}
    - {name: pool, kind: global_avg_pool}
    - {name: fc, kind: linear, features: classes}
optimizer: {lr: 0.01}
train: {epochs: 1}
evaluate: {recompute_batch_norm: true}
)";

TEST_SUITE("cpu") {
  TEST_CASE("1, 2, 3 and 4 ranks: the same losses, counts, scales, histograms") {
    for (const std::string policy :
         {"{policy: adaptive, init_scale: 8}", "{policy: adaptive, method: exact_range}",
          "{policy: adaptive, method: element_wise_range}", "{policy: dynamic}",
          "{policy: layerwise_dynamic}"}) {
      CAPTURE(policy);
      const TempFolder folder;
      const std::string text = std::string(kPlain) + "scaling: " + policy + "\n";
      MustTrain(text, folder / "one", 1);
      for (const int ranks : {2, 3, 4}) {
        CAPTURE(ranks);
        const std::string shared = folder / std::to_string(ranks);
        MustTrain(text, shared, ranks);
        CompareLosses(folder / "one", shared, 1e-6, 1e-3);
        CompareCounts(folder / "one", shared, 2e-3);
        CompareScales(folder / "one", shared);
        // The values of step 1 are those of one process, whose counts by exponent are exact.
        const auto exact = [&](const std::string& run) {
          Table rows = RowsWhere(ReadCsv(run + "/histograms.csv"), "step", "1");
          return RowsWhere(rows, "tensor", "y");
        };
        CHECK(exact(folder / "one") == exact(shared));
      }
    }
  }

  TEST_CASE("batch norms over all ranks: the same losses and statistics") {
    const TempFolder folder;
    MustTrain(kNorms, folder / "one", 1);
    for (const int ranks : {2, 3, 4}) {
      CAPTURE(ranks);
      const std::string shared = folder / std::to_string(ranks);
      MustTrain(kNorms, shared, ranks);
      CompareLosses(folder / "one", shared, 1e-6, 1e-4);
      CompareCounts(folder / "one", shared, 2e-3);
    }
  }

  TEST_CASE("a language model: the same losses, counts and decisions, and the same bytes again") {
    const TempFolder folder;
    std::string text;
    for (int i = 0; i < 40; ++i) text += "the cat sat on the mat. a dog lay in the fog. ";
    folder.Write("text.txt", text);
    config::Overrides overrides = {{"data.path", folder / "text.txt"}};
    MustTrain(kWords, folder / "one", 1, {.overrides = overrides});
    for (const int ranks : {2, 3}) {
      CAPTURE(ranks);
      const std::string shared = folder / std::to_string(ranks);
      MustTrain(kWords, shared, ranks, {.overrides = overrides});
      CompareLosses(folder / "one", shared, 1e-6, 2e-3);
      CompareCounts(folder / "one", shared, 2e-3);
      CompareScales(folder / "one", shared);
    }
    MustTrain(kWords, folder / "again", 3, {.overrides = overrides});
    CHECK(DifferentFiles(folder / "3", folder / "again").empty());
    overrides.emplace_back("train.max_steps", "3");
    MustTrain(kWords, folder / "parts", 3, {.overrides = overrides});
    overrides.back().second = "6";
    MustTrain(kWords, folder / "parts", 3, {.resume = true, .overrides = overrides});
    const std::vector<std::string> different = DifferentFiles(folder / "3", folder / "parts");
    CHECK(different == std::vector<std::string>{"evaluation.csv"});  // at its first end as well
  }

  TEST_CASE("batch norms of each rank's own: it trains, and all have one state") {
    const TempFolder folder;
    MustTrain(kNorms, folder / "a", 3, {.overrides = {{"parallel.sync_batch_norm", "false"}}});
    MustTrain(kNorms, folder / "b", 3, {.overrides = {{"parallel.sync_batch_norm", "false"}}});
    CHECK(DifferentFiles(folder / "a", folder / "b").empty());
  }

  TEST_CASE("recomputed batch norms: a rank without a row of the last batch is not waited for") {
    // 91 images in batches of 18: the last has one, and its operands' amax is that of one rank.
    // Weights stay as they start, and losses are equal but for the order of sums.
    const TempFolder folder;
    const config::Overrides overrides = {
        {"data.synthetic.train", "91"},
        {"train.epochs", "1"},
        {"optimizer.lr", "1e-30"},
        {"evaluate.recompute_batch_norm", "true"},
        {"precision.operands", "{x: fp8_e4m3, w: fp8_e4m3, tensor_scaling: current}"}};
    MustTrain(kNorms, folder / "one", 1, {.overrides = overrides});
    MustTrain(kNorms, folder / "two", 2, {.overrides = overrides});
    const Table one = ReadCsv(folder / "one/evaluation.csv");
    const Table two = ReadCsv(folder / "two/evaluation.csv");
    REQUIRE(one.size() == two.size());
    REQUIRE(!one.empty());
    for (std::size_t i = 0; i < one.size(); ++i)
      CHECK(NumberIn(one[i], "loss") == doctest::Approx(NumberIn(two[i], "loss")).epsilon(1e-4));
  }

  TEST_CASE(
      "recomputed batch norms: a rank whose images of a batch are all broken is not waited for") {
    const TempFolder folder;
    RandomStream random(7, 1);
    for (const std::string split : {"train", "test"})
      for (const std::string name : {"cat", "dog"})
        for (int i = 0; i < 4; ++i) {
          const std::string path = split + "/" + name + "/" + std::to_string(i) + ".png";
          std::filesystem::create_directories(std::filesystem::path(folder / path).parent_path());
          data::WritePng(folder / path, DrawShapes(12, 12, {{i % 2, 2, 2, 5, 5}}, random));
          // The second of two ranks has these two of the first batch of four.
          if (split != "train" || name != "cat" || i < 2) continue;
          std::string bytes = ReadBytes(folder / path);
          bytes[bytes.size() / 2] ^= 0x55;  // found when it is decoded
          folder.Write(path, bytes);
        }
    // Weights stay as they start.
    const config::Overrides overrides = {{"data.path", folder.path()},
                                         {"optimizer.lr", "1e-30"},
                                         {"parallel.sync_batch_norm", "true"}};
    std::vector<double> losses;
    for (const int ranks : {1, 2}) {
      const std::string run = folder / ("run" + std::to_string(ranks));
      MustTrain(kBroken, run, ranks, {.overrides = overrides});
      CHECK(RowsWhere(ReadCsv(run + "/events.csv"), "event", "broken_image").size() >= 2);
      losses.push_back(NumberIn(ReadCsv(run + "/evaluation.csv").at(0), "loss"));
    }
    CHECK(losses[1] == doctest::Approx(losses[0]).epsilon(1e-6));
  }

  TEST_CASE("micro-batches, mixed images, a short last batch: the same losses") {
    const TempFolder folder;
    const config::Overrides overrides = {
        {"train.accumulate", "3"},          {"data.drop_last", "false"},
        {"data.batch_size", "27"},          {"data.augment.mixup.alpha", "0.4"},
        {"data.augment.cutmix.alpha", "1"}, {"train.epochs", "1"},
        {"precision.format", "fp32"},       {"log.probe_every", "0"}};
    MustTrain(kPlain, folder / "one", 1, {.overrides = overrides});
    for (const int ranks : {2, 3}) {
      MustTrain(kPlain, folder / std::to_string(ranks), ranks, {.overrides = overrides});
      CompareLosses(folder / "one", folder / std::to_string(ranks), 1e-6, 1e-5);
      CompareCounts(folder / "one", folder / std::to_string(ranks), 2e-3);
    }
  }

  TEST_CASE("stochastic rounding takes the random numbers of one process") {
    const TempFolder folder;
    const config::Overrides overrides = {{"precision.rounding", "stochastic"},
                                         {"train.max_steps", "1"}};
    MustTrain(kPlain, folder / "one", 1, {.overrides = overrides});
    MustTrain(kPlain, folder / "three", 3, {.overrides = overrides});
    CompareLosses(folder / "one", folder / "three", 1e-6, 1e-6);
    const auto y = [](const std::string& run) {
      return RowsWhere(ReadCsv(run + "/underflow.csv"), "tensor", "y");
    };
    const Table a = y(folder / "one"), b = y(folder / "three");
    REQUIRE(a.size() == b.size());
    for (std::size_t i = 0; i < a.size(); ++i) CHECK(a[i].at("underflow") == b[i].at("underflow"));
  }

  TEST_CASE("the same ranks give the same bytes, and go on to them") {
    for (const std::string more :
         {"scaling: {policy: adaptive, update_interval: 3}\n",
          "scaling: {policy: adaptive, method: exact_range}\nparallel: {statistics: local}\n",
          "scaling: {policy: dynamic}\nparallel: {gradients: fp16, bucket_mb: 0.001}\n"}) {
      CAPTURE(more);
      const TempFolder folder;
      const std::string text = kPlain + more;
      MustTrain(text, folder / "a", 3);
      MustTrain(text, folder / "b", 3);
      CHECK(DifferentFiles(folder / "a", folder / "b").empty());
      MustTrain(text, folder / "c", 3, {.overrides = {{"train.max_steps", "4"}}});
      MustTrain(text, folder / "c", 3, {.resume = true});
      // Which has evaluated at its first end, too.
      std::vector<std::string> different = DifferentFiles(folder / "a", folder / "c");
      std::erase(different, "evaluation.csv");
      CAPTURE(different.empty() ? "" : different[0]);
      CHECK(different.empty());
    }
  }

#ifndef ADA_ON_KERNELS  // what run::Train finds
  TEST_CASE("another number of ranks has to be said") {
    const TempFolder folder;
    MustTrain(kPlain, folder / "run", 2, {.overrides = {{"train.max_steps", "3"}}});
    for (const int ranks : {1, 3}) {
      const std::vector<Ended> ended =
          TrainDistributed(kPlain, folder / "run", ranks, {.resume = true});
      CHECK(ended[0].code == 2);
      CHECK(ended[0].message.find("the run had 2 processes") != std::string::npos);
    }
    MustTrain(kPlain, folder / "run", 3, {.resume = true, .overrides = {{"parallel.ranks", "3"}}});
    CHECK(ReadCsv(folder / "run/steps.csv").size() == 10);
    const std::vector<Ended> ended =
        TrainDistributed(kPlain, folder / "new", 2, {.overrides = {{"parallel.ranks", "4"}}});
    CHECK(ended[0].code == 2);
    CHECK(ended[0].message.find("2 processes were started") != std::string::npos);
  }

  TEST_CASE("ranks that differ are found at the start") {
    const TempFolder folder;
    std::vector<Ended> ended = TrainDistributed(
        kPlain, folder / "a", 3, {.other_rank = 1, .others = {{"optimizer.lr", "0.06"}}});
    CHECK(ended[0].code == 2);
    CHECK(ended[0].message.find("rank 1 of 3 (host here) is not that of rank 0:\n  optimizer.lr: "
                                "0.05 -> 0.06") != std::string::npos);
    ended = TrainDistributed(kPlain, folder / "b", 2, {.overrides = {{"data.batch_size", "1"}}});
    CHECK(ended[0].code == 2);
    CHECK(ended[0].message.find("data.batch_size is 1 image, fewer than the 2 processes") !=
          std::string::npos);
    ended = TrainDistributed(kPlain, folder / "c", 2,
                             {.overrides = {{"scaling", "{policy: adaptive, reference: true}"},
                                            {"parallel.statistics", "local"}}});
    CHECK(ended[0].code == 2);
    CHECK(ended[0].message.find("does not go with scaling.reference") != std::string::npos);
  }

  TEST_CASE("a folder that not all ranks see is found before anything depends on it") {
    const TempFolder folder;
    for (const std::string more : {"", "scaling: {policy: dynamic, init_scale: auto}\n"}) {
      CAPTURE(more);
      std::filesystem::remove_all(folder / "run");
      for (const char* steps : {"3", "0"}) {  // stopped, and finished
        MustTrain(kPlain + more, folder / "run", 2,
                  {.resume = true, .overrides = {{"train.max_steps", steps}}});
        const std::vector<Ended> ended = TrainDistributed(
            kPlain + more, folder / "run", 2,
            {.resume = true, .other_rank = 1, .others = {{"output", folder / "elsewhere"}}});
        for (const Ended& rank : ended) {
          CHECK(rank.code == 3);
          CHECK(rank.message.find("rank 1 of 2 (host here) found no checkpoint, rank 0 a "
                                  "checkpoint of step ") != std::string::npos);
        }
      }
    }
  }

  TEST_CASE("a run that was stopped after its last evaluation ends for all ranks") {
    const TempFolder folder;
    MustTrain(kPlain, folder / "run", 2);
    const std::string rows = ReadBytes(folder / "run/evaluation.csv");
    std::filesystem::remove(folder / "run/summary.json");
    MustTrain(kPlain, folder / "run", 2, {.resume = true});
    CHECK(std::filesystem::exists(folder / "run/summary.json"));
    CHECK(ReadBytes(folder / "run/evaluation.csv") == rows);
  }

#endif
  TEST_CASE("probes and dumps are of the whole batch") {
    const TempFolder folder;
    const config::Overrides overrides = {{"train.max_steps", "1"}, {"log.dump_every", "1"}};
    MustTrain(kPlain, folder / "one", 1, {.overrides = overrides});
    MustTrain(kPlain, folder / "three", 3, {.overrides = overrides});
    const Table a = ReadCsv(folder / "one/probes.csv"), b = ReadCsv(folder / "three/probes.csv");
    REQUIRE(a.size() == b.size());
    REQUIRE(!a.empty());
    for (std::size_t i = 0; i < a.size(); ++i) {
      CAPTURE(a[i].at("layer"));
      CAPTURE(a[i].at("tensor"));
      CHECK(a[i].at("numel") == b[i].at("numel"));
      CHECK(NumberIn(a[i], "nonzero") == doctest::Approx(NumberIn(b[i], "nonzero")).epsilon(1e-3));
      CHECK(NumberIn(a[i], "mse") == doctest::Approx(NumberIn(b[i], "mse")).epsilon(1e-2));
    }
    const std::string file = "/dump/step-00000001.safetensors";
    const auto one = SafetensorsFile::Open(folder / "one" + file);
    const auto three = SafetensorsFile::Open(folder / "three" + file);
    // What is computed image by image is the same, in the order of the batch.
    for (const char* tensor : {"conv1.x", "conv1.y", "drop.y", "fc.y", "loss.dx", "conv2.dx"}) {
      CAPTURE(tensor);
      CHECK(one.ReadF32(tensor) == three.ReadF32(tensor));
    }
    const std::vector<float> dw = one.ReadF32("conv1.dw"), sum = three.ReadF32("conv1.dw");
    REQUIRE(dw.size() == sum.size());
    double error = 0, size = 0;
    for (std::size_t i = 0; i < dw.size(); ++i) {
      error += std::fabs(static_cast<double>(dw[i]) - static_cast<double>(sum[i]));
      size += std::fabs(static_cast<double>(dw[i]));
    }
    CHECK(error < 1e-5 * size);
  }

  TEST_CASE("what transport in 16 bits lost is counted in rows of its own") {
    const TempFolder folder;
    const std::string text =
        std::string(kPlain) + "scaling: {policy: fixed, scale: 1}\nparallel: {gradients: fp16}\n";
    MustTrain(text, folder / "run", 2, {.overrides = {{"train.max_steps", "2"}}});
    const Table rows = RowsWhere(ReadCsv(folder / "run/underflow.csv"), "tensor", "sent");
    REQUIRE(rows.size() == 6);  // three layers, two steps
    // A part of each rank, and the sum.
    CHECK(rows[0].at("layer") == "conv1");
    CHECK(rows[0].at("numel") == std::to_string(3 * (8 * 27 + 8)));
    CHECK(rows[0].at("format") == "fp16");
    std::int64_t lost = 0;
    for (const GoldenRow& row : rows) lost += std::stoll(row.at("underflow"));
    CHECK(lost > 0);
  }
}

}  // namespace
}  // namespace ada::testing
