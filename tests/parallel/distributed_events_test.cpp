// What happens in one rank is told of the whole run: an overflow names it, unequal files end all,
// metrics are those of all images.
#include <doctest/doctest.h>

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "io/tensor_files/safetensors.h"
#include "parallel/distributed_run.h"
#include "train/made_up_sets.h"

namespace ada::testing {
namespace {

const char kTensors[] = R"(
name: events
seed: 2
device: {kind: cpu, threads: 1}
data: {dataset: tensors, batch_size: 8, shuffle: false, normalize: none}
model:
  classes: 3
  layers:
    - {name: conv, kind: conv2d, channels: 4, kernel: 3, padding: 1}
    - {name: relu, kind: relu}
    - {name: fc, kind: linear, features: 3}
precision: {format: fp16}
scaling: {policy: dynamic, init_scale: 16}
optimizer: {kind: sgd, lr: 0.01}
train: {epochs: 2}
log: {every: 1}
)";

// 16 images; `large` is the number of one whose pixels leave fp16 in the first layer, -1: none.
void WriteSet(const std::string& path, int large) {
  SafetensorsWriter writer;
  std::vector<float> images, few;
  std::vector<std::int64_t> labels, fewer;
  for (int i = 0; i < 16; ++i) {
    for (int p = 0; p < 36; ++p)
      images.push_back(i == large ? 60000.0f : static_cast<float>((i * 7 + p * 3) % 11) / 11.0f);
    labels.push_back(i % 3);
  }
  few.assign(images.begin(), images.begin() + 4 * 36);
  fewer.assign(labels.begin(), labels.begin() + 4);
  writer.Add("train.images", {16, 6, 6, 1}, images);
  writer.Add("test.images", {4, 6, 6, 1}, few);
  writer.Add("train.labels", DType::kI64, {16}, std::as_bytes(std::span(labels)));
  writer.Add("test.labels", DType::kI64, {4}, std::as_bytes(std::span(fewer)));
  writer.WriteAtomically(path);
}

TEST_SUITE("cpu") {
  TEST_CASE("an overflow on one rank skips on all, and the event names rank, layer and tensor") {
    const TempFolder folder;
    WriteSet(folder / "set.safetensors", 13);  // of the second batch, of which rank 1 has 4..7
    MustTrain(kTensors, folder / "one", 1,
              {.overrides = {{"data.path", folder / "set.safetensors"}}});
    MustTrain(kTensors, folder / "two", 2,
              {.overrides = {{"data.path", folder / "set.safetensors"}}});
    const Table alone = ReadCsv(folder / "one/steps.csv"),
                shared = ReadCsv(folder / "two/steps.csv");
    REQUIRE(shared.size() == alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) {
      CHECK(shared[i].at("overflow") == (i % 2 == 1 ? "1" : "0"));
      for (const char* column : {"overflow", "skipped", "scale"})
        CHECK(shared[i].at(column) == alone[i].at(column));
    }
    const std::string events = ReadBytes(folder / "two/events.csv");
    CHECK(events.find("2,1,skip,conv,y,") != std::string::npos);
    CHECK(events.find("on rank 1 of 2 (host here)") != std::string::npos);
    CHECK(events.find("on rank 0") == std::string::npos);
  }

  TEST_CASE("the dump of an event has the images and labels of all ranks") {
    const TempFolder folder;
    WriteSet(folder / "set.safetensors", 13);
    const config::Overrides overrides = {{"data.path", folder / "set.safetensors"},
                                         {"log.dump_on", "skip"}};
    for (const int ranks : {1, 3}) {  // of 8 images: 3, 3 and 2
      CAPTURE(ranks);
      const std::string run = folder / std::to_string(ranks);
      MustTrain(kTensors, run, ranks, {.overrides = overrides});
      const auto dump = SafetensorsFile::Open(run + "/dump/skip-00000002.safetensors");
      const auto set = SafetensorsFile::Open(folder / "set.safetensors");
      REQUIRE(dump.Find("batch.images") != nullptr);
      CHECK(dump.Find("batch.images")->shape == std::vector<std::int64_t>{8, 1, 6, 6});
      CHECK(dump.Find("batch.labels")->shape == std::vector<std::int64_t>{8});
      CHECK(dump.Find("conv.y")->shape == std::vector<std::int64_t>{8, 4, 6, 6});
      const std::vector<float> all = set.ReadF32("train.images");
      CHECK(dump.ReadF32("batch.images") == std::vector<float>(all.begin() + 8 * 36, all.end()));
      std::vector<float> labels;
      for (int i = 8; i < 16; ++i) labels.push_back(static_cast<float>(i % 3));
      CHECK(dump.ReadF32("batch.labels") == labels);
    }
  }

  TEST_CASE("unequal images end all at the start") {
    const TempFolder folder;
    WriteSet(folder / "set.safetensors", -1);
    std::filesystem::create_directory(folder / "there");
    WriteSet(folder / "there/set.safetensors", 13);
    const std::vector<Ended> ended =
        TrainDistributed(kTensors, folder / "run", 2,
                         {.overrides = {{"data.path", folder / "set.safetensors"}},
                          .other_rank = 1,
                          .others = {{"data.path", folder / "there/set.safetensors"}}});
    for (const Ended& of_rank : ended) CHECK(of_rank.code == 3);
    CHECK(ended[0].message.find("the images, labels or tokens of rank 1 of 2 (host here)") == 0);
  }

  TEST_CASE("an evaluation that ranks share judges as one process does") {
    // Networks that do not learn: all metrics are of the same weights.
    const TempFolder folder;
    WriteCamvid(folder, "shapes", 12, 7);
    WriteVoc(folder, "VOC", 12, 11);
    const auto check = [&](const char* text, const std::string& data, const std::string& name) {
      CAPTURE(name);
      const config::Overrides overrides = {{"data.path", folder / data},
                                           {"optimizer.lr", "1e-30"},
                                           {"train.epochs", "1"},
                                           {"data.evaluate_batch_size", "2"},
                                           {"parallel.sync_batch_norm", "true"}};
      MustTrain(text, folder / (name + "1"), 1, {.overrides = overrides});
      for (const int ranks : {2, 3}) {
        const std::string shared = folder / (name + std::to_string(ranks));
        MustTrain(text, shared, ranks, {.overrides = overrides});
        // Statistics of batch norms differ in their last bits, so that single pixels may flip.
        const Table mine = ReadCsv(folder / (name + "1/classes.csv"));
        const Table theirs = ReadCsv(shared + "/classes.csv");
        REQUIRE(mine.size() == theirs.size());
        for (std::size_t i = 0; i < mine.size(); ++i)
          for (const auto& [column, value] : mine[i]) {
            CAPTURE(column);
            const bool exact = column == "class" || column == "count" || column == "split" ||
                               value.empty() || value == "nan";
            if (exact)
              CHECK(theirs[i].at(column) == value);
            else
              CHECK(std::stod(theirs[i].at(column)) ==
                    doctest::Approx(std::stod(value)).epsilon(0.02));
          }
        const Table one = ReadCsv(folder / (name + "1/evaluation.csv"));
        const Table all = ReadCsv(shared + "/evaluation.csv");
        REQUIRE(one.size() == all.size());
        for (std::size_t i = 0; i < one.size(); ++i) {
          CHECK(one[i].at("images") == all[i].at("images"));
          CHECK(std::stod(all[i].at("loss")) ==
                doctest::Approx(std::stod(one[i].at("loss"))).epsilon(1e-4));
        }
      }
    };
    check(kSegmentationRun, "shapes", "pixels");
    check(kDetectionRun, "VOC", "boxes");
  }
}

}  // namespace
}  // namespace ada::testing
