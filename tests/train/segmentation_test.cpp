// task: segmentation, by the program: a run with its logs, the evaluation of its checkpoint and the
// label images that it writes; resume, workers and threads change no byte; what goes wrong.
#include <cmath>
#include <filesystem>

#include "data/images/picture.h"
#include "train/made_up_sets.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

class ShapesRun {
 public:
  explicit ShapesRun(const std::string& text = kSegmentationRun) {
    WriteCamvid(folder_, "shapes", 20, 7);
    start_ = WriteConfig(folder_, "run", text);
  }
  Outcome Train(const Arguments& more = {}) { return Run(With(start_, more), folder_.path()); }
  Outcome Do(const Arguments& arguments) { return Run(arguments, folder_.path()); }
  std::string operator/(const std::string& name) const { return folder_ / name; }

 private:
  TempFolder folder_;
  Arguments start_;
};

double Share(const GoldenRow& row, const char* column) { return Number(row, column); }

TEST_SUITE("cpu") {
  TEST_CASE("a run learns shapes; its logs tell classes and confusions, and evaluate agrees") {
    ShapesRun run;
    const Outcome trained = run.Train();
    ADA_REQUIRE_EXIT(trained, 0);
    CHECK(
        Contains(trained.err + trained.out, "class weights (median_frequency of 20 label images)"));
    CHECK(Contains(trained.err, "mIoU"));
    const Table steps = ReadCsv(run / "run/steps.csv");
    REQUIRE(steps.size() == 50);
    CHECK(Number(steps.back(), "loss") < Number(steps.front(), "loss") / 2);
    CHECK(Number(steps.back(), "accuracy") > 0.9);

    const Table evaluations = ReadCsv(run / "run/evaluation.csv");
    REQUIRE(evaluations.size() == 2);
    CHECK(evaluations[0].at("top1").empty());
    CHECK(evaluations[0].at("images") == "7");
    const Table classes = ReadCsv(run / "run/classes.csv");
    REQUIRE(classes.size() == 8);
    std::vector<std::string> names;
    for (const GoldenRow& row : classes) names.push_back(row.at("class"));
    CHECK(Arguments(names.begin(), names.begin() + 4) ==
          Arguments{"first", "second", "ground", "all"});
    const GoldenRow& all = classes.back();
    CHECK(Share(all, "iou") > 0.7);
    CHECK(std::abs(Share(all, "iou") - (Share(classes[4], "iou") + Share(classes[5], "iou") +
                                        Share(classes[6], "iou")) /
                                           3) < 1e-8);
    CHECK(all.at("ap_07").empty());
    CHECK(all.at("count") == std::to_string(7 * 22 * 30));  // without the row that is ignored
    std::int64_t pixels = 0, right = 0;
    for (const GoldenRow& pair : RowsWhere(ReadCsv(run / "run/confusion.csv"), "step", "50")) {
      pixels += std::stoll(pair.at("count"));
      if (pair.at("class") == pair.at("prediction")) right += std::stoll(pair.at("count"));
    }
    CHECK(pixels == 7 * 22 * 30);
    CHECK(std::abs(double(right) / double(pixels) - Share(all, "pixel_accuracy")) < 1e-8);

    const nlohmann::json summary = Summary(run / "run");
    CHECK(summary["evaluation"]["test"]["miou"] == doctest::Approx(Share(all, "iou")));
    CHECK(!summary["evaluation"]["test"].contains("top1"));
    CHECK(RowsWhere(ReadCsv(run / "run/events.csv"), "event", "class_weights").size() == 1);
    const Table underflow = ReadCsv(run / "run/underflow.csv");
    CHECK(RowsWhere(RowsWhere(underflow, "layer", "cast"), "tensor", "dx").size() == 6);

    const Outcome evaluated = run.Do({"evaluate", "run", "--predictions", "said", "--no-progress"});
    ADA_REQUIRE_EXIT(evaluated, 0);
    CHECK(evaluated.out == "split,images,loss,miou,mean_class_accuracy,pixel_accuracy\ntest,7," +
                               evaluations[1].at("loss") + "," + all.at("iou") + "," +
                               all.at("accuracy") + "," + all.at("pixel_accuracy") + "\n");
    for (int i = 0; i < 7; ++i) {
      const std::string name = "image" + std::to_string(100 + i) + ".png";
      CHECK(data::ReadPicture(run / ("said/" + name)).size() == data::PictureSize{23, 30});
      CHECK(data::ReadPicture(run / ("said/overlays/" + name)).size() == data::PictureSize{23, 30});
    }
    const Outcome score = run.Do({"score", "segmentation", "--labels", "shapes/testannot",
                                  "--predictions", "said", "--ignore", "255", "--csv"});
    ADA_CHECK_EXIT(score, 0);
    WriteBytes(run / "score.csv", score.out);
    const GoldenRow judged = ReadCsv(run / "score.csv").back();
    for (const auto& [theirs, ours] : {std::pair("miou", "iou"),
                                       {"pixel_accuracy", "pixel_accuracy"},
                                       {"mean_class_accuracy", "accuracy"}})
      CHECK(std::abs(Number(judged, theirs) - Share(all, ours)) < 1e-8);
    const Outcome per_class = run.Do({"evaluate", "run", "--per-class", "--no-progress"});
    CHECK(Contains(per_class.out, "test,1,second," + classes[5].at("count") + "," +
                                      classes[5].at("iou") + "," + classes[5].at("accuracy")));
    const Outcome predicted = run.Do({"predict", "shapes/test/image100.png", "--checkpoint", "run",
                                      "--csv", "--predictions", "photos"});
    ADA_REQUIRE_EXIT(predicted, 0);
    CHECK(
        predicted.out.starts_with("photo,class,name,pixels,share\nshapes/test/image100.png,2,gr"));
    CHECK(ReadBytes(run / "photos/image100.png") == ReadBytes(run / "said/image100.png"));
  }

  TEST_CASE("a probe's fp32 gradients are of the same loss, with its weights of classes") {
    ShapesRun run;
    ADA_REQUIRE_EXIT(
        run.Train({"--set", "precision={format: fp32}", "--set", "scaling={policy: none}", "--set",
                   "train.max_steps=2", "--set", "log={probe_every: 1, statistics: [dx, dw]}"}),
        0);
    const Table probes = ReadCsv(run / "run/probes.csv");
    CHECK(probes.size() > 4);
    for (const GoldenRow& row : probes) {
      CAPTURE(row.at("layer"));
      CHECK(Number(row, "mse") == 0);
    }
  }

  TEST_CASE("workers, threads and a resume change no byte") {
    const TempFolder folder;
    WriteCamvid(folder, "shapes", 20, 7);
    const Arguments start = With(WriteConfig(folder, "run", kSegmentationRun),
                                 {"--set", "data.augment.random_scale=[0.8, 1.3]", "--set",
                                  "data.augment.random_crop=true", "--set", "checkpoint.keep=9",
                                  "--set", "data.validation=4", "--set", "train.accumulate=2"});
    const auto train = [&](const std::string& name, const Arguments& more) {
      ADA_REQUIRE_EXIT(Run(With(start, With({"--output", name}, more)), folder.path()), 0);
    };
    train("a", {});
    train("b", {"--set", "data.workers=3", "--set", "device.threads=1"});
    CHECK(Differences(folder / "a", folder / "b") == Arguments{});
    // As a kill after step 15 leaves it.
    for (const std::string& name : Checkpoints(folder / "b", ""))
      if (!name.starts_with("step-00000015"))
        std::filesystem::remove(folder / ("b/checkpoints/" + name));
    std::filesystem::remove(folder / "b/summary.json");
    train("b", {"--resume", "--set", "data.workers=0"});
    CHECK(Differences(folder / "a", folder / "b") == Arguments{});
    CHECK(ReadCsv(folder / "a/classes.csv").size() == 2 * 2 * 4);  // ends, splits, classes and all
  }

  TEST_CASE("checkpoints hold the averages of training, whatever an evaluation computes anew") {
    const TempFolder folder;
    WriteCamvid(folder, "shapes", 8, 3);
    const Arguments start = With(WriteConfig(folder, "run", kSegmentationRun),
                                 {"--epochs", "2", "--set", "evaluate.every_epochs=1"});
    for (const std::string how : {"false", "true", "reference"})
      ADA_REQUIRE_EXIT(
          Run(With(start, {"--output", how, "--set", "evaluate.recompute_batch_norm=" + how}),
              folder.path()),
          0);
    for (const std::string how : {"true", "reference"}) {
      CHECK(ReadBytes(NewestCheckpoint(folder / how)) ==
            ReadBytes(NewestCheckpoint(folder / "false")));
      CHECK(ReadBytes(folder / (how + "/evaluation.csv")) !=
            ReadBytes(folder / "false/evaluation.csv"));
      CHECK(ReadBytes(folder / (how + "/steps.csv")) == ReadBytes(folder / "false/steps.csv"));
    }
  }

  TEST_CASE("images without a label, and a network that explodes") {
    ShapesRun run;
    // Two of the images that are trained on have nothing but ignored pixels.
    for (const std::string name : {"image100", "image101"})
      data::WritePng(run / ("shapes/trainannot/" + name + ".png"),
                     {23, 30, 1, std::vector<std::uint8_t>(23 * 30, 255)});
    ADA_CHECK_EXIT(run.Train({"--epochs", "1", "--set", "data.batch_size=1", "--output", "few"}),
                   0);
    int without = 0;
    for (const GoldenRow& step : ReadCsv(run / "few/steps.csv")) {
      CHECK(std::isfinite(Number(step, "loss")));
      without += Number(step, "loss") == 0 ? 1 : 0;
    }
    CHECK(without == 2);
    const Outcome lost = run.Train({"--epochs", "2", "--lr", "1e30", "--output", "lost", "--set",
                                    "precision.format=fp32", "--set", "precision.layers=[]"});
    ADA_CHECK_EXIT(lost, 0);
    const Table classes = ReadCsv(run / "lost/classes.csv");
    CHECK(Share(classes.back(), "pixel_accuracy") < 0.9);
    CHECK(ReadCsv(run / "lost/evaluation.csv").back().at("loss") == "nan");
  }
}

}  // namespace
}  // namespace ada::testing
