// task: detection, by the program: a run with its logs, the evaluation of its checkpoint and the
// boxes that it writes; resume, workers and threads change no byte; what goes wrong.
#include <cmath>
#include <filesystem>

#include "train/made_up_sets.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

// A set, and the small network's configuration for it.
struct BoxesRun {
  explicit BoxesRun(int train = 30, int test = 9) {
    WriteVoc(folder, "shapes", train, test);
    start = WriteConfig(folder, "run", kDetectionRun);
  }
  Outcome Train(const Arguments& more = {}) const { return Run(With(start, more), folder.path()); }
  Outcome Do(const Arguments& arguments) const { return Run(arguments, folder.path()); }

  TempFolder folder;
  Arguments start;
};

TEST_SUITE("cpu") {
  TEST_CASE("a run learns boxes; its logs tell classes and losses, evaluate and score agree") {
    const BoxesRun run;
    const Outcome trained = run.Train({"--epochs", "60"});
    ADA_REQUIRE_EXIT(trained, 0);
    CHECK(Contains(trained.err, "mAP (2007)"));
    CHECK(Contains(trained.err, "(locations "));
    const Table steps = ReadCsv(run.folder / "run/steps.csv"),
                losses = ReadCsv(run.folder / "run/losses.csv");
    REQUIRE(steps.size() == 420);
    REQUIRE(losses.size() == 420);
    CHECK(Number(steps.back(), "loss") < Number(steps.front(), "loss") / 2);
    for (std::size_t i = 0; i < steps.size(); ++i)
      CHECK(Number(losses[i], "locations") + Number(losses[i], "classes") ==
            doctest::Approx(Number(steps[i], "loss")));

    const Table classes = ReadCsv(run.folder / "run/classes.csv");
    REQUIRE(classes.size() == 9);
    CHECK(classes[6].at("class") == "cell");
    CHECK(classes[7].at("class") == "plate");
    const GoldenRow& all = classes.back();
    CHECK(all.at("class") == "all");
    CHECK(all.at("iou").empty());
    CHECK(Number(all, "ap_07") > 0.5);
    CHECK(all.at("count") == "14");  // eight images with both; two of the plates are difficult
    CHECK(!std::filesystem::exists(run.folder / "run/confusion.csv"));
    CHECK(Summary(run.folder / "run")["evaluation"]["test"]["map_07"] ==
          doctest::Approx(Number(all, "ap_07")));

    const Outcome evaluated = run.Do({"evaluate", "run", "--predictions", "said", "--no-progress"});
    ADA_REQUIRE_EXIT(evaluated, 0);
    CHECK(Contains(evaluated.out, "split,images,loss,map_07,map\ntest,9,"));
    CHECK(Contains(evaluated.out, "," + all.at("ap_07") + "," + all.at("ap") + "\n"));
    CHECK(std::filesystem::exists(run.folder / "said/overlays/test104.png"));
    const Table found = ReadCsv(run.folder / "said/detections.csv");
    CHECK(found.size() > 14);
    CHECK(found[0].at("image") == "test100");
    const Outcome score = run.Do({"score", "voc", "--data", "shapes", "--split", "test",
                                  "--detections", "said/detections.csv", "--csv"});
    ADA_REQUIRE_EXIT(score, 0);
    WriteBytes(run.folder / "score.csv", score.out);
    const GoldenRow judged = ReadCsv(run.folder / "score.csv").back();
    CHECK(judged.at("class") == "map");
    for (const char* column : {"ap_07", "ap"})
      CHECK(std::abs(Number(judged, column) - Number(all, column)) < 1e-8);
    const Outcome predicted = run.Do({"predict", "shapes/JPEGImages/test100.jpg", "--checkpoint",
                                      "run", "--json", "--set", "detection.draw=0.3"});
    ADA_REQUIRE_EXIT(predicted, 0);
    const nlohmann::json photos = nlohmann::json::parse(predicted.out);
    CHECK(photos.at(0).at("boxes").size() > 0);
    CHECK(photos.at(0).at("boxes").at(0).at("box").size() == 4);
    const Outcome outputs = run.Do({"evaluate", "run", "--outputs", "o.safetensors"});
    ADA_CHECK_EXIT(outputs, 2);
    CHECK(Contains(outputs.err, "--outputs"));
  }

  TEST_CASE("workers, threads and a resume change no byte") {
    const BoxesRun run(17, 4);
    const Arguments more = {"--epochs", "6",
                            "--set",    "checkpoint.keep=9",
                            "--set",    "evaluate.every_epochs=3",
                            "--set",    "train.accumulate=2",
                            "--set",    "data.augment.ssd=true"};
    const auto train = [&](const std::string& name, const Arguments& others) {
      ADA_REQUIRE_EXIT(run.Train(With(With(more, {"--output", name}), others)), 0);
    };
    train("a", {});
    train("b", {"--set", "data.workers=3", "--set", "device.threads=1"});
    CHECK(Differences(run.folder / "a", run.folder / "b") == Arguments{});
    // As a kill after step 15 leaves it.
    for (const std::string& name : Checkpoints(run.folder / "b", ""))
      if (!name.starts_with("step-00000015"))
        std::filesystem::remove(run.folder / ("b/checkpoints/" + name));
    std::filesystem::remove(run.folder / "b/summary.json");
    train("b", {"--resume", "--set", "data.workers=0"});
    CHECK(Differences(run.folder / "a", run.folder / "b") == Arguments{});
  }

  TEST_CASE("batches without an object, and a network that explodes") {
    const BoxesRun run(10, 3);
    ADA_CHECK_EXIT(
        run.Train({"--epochs", "1", "--set", "data.batch_size=1", "--set", "data.shuffle=false",
                   "--set", "data.augment.ssd=false", "--output", "few"}),
        0);
    const Table losses = ReadCsv(run.folder / "few/losses.csv");
    REQUIRE(losses.size() == 10);
    for (std::size_t i = 0; i < losses.size(); ++i) {
      CHECK(std::isfinite(Number(losses[i], "classes")));
      CHECK((losses[i].at("terms") == "0") == (i % 5 == 4));
      if (i % 5 == 4) CHECK(Number(losses[i], "locations") == 0);
    }
    const Outcome lost = run.Train({"--epochs", "2", "--lr", "1e30", "--output", "lost", "--set",
                                    "precision.format=fp32", "--set", "precision.layers=[]",
                                    "--set", "train.clip_norm=0"});
    ADA_CHECK_EXIT(lost, 0);
    CHECK(ReadCsv(run.folder / "lost/evaluation.csv").back().at("loss") == "nan");
    CHECK(Number(ReadCsv(run.folder / "lost/classes.csv").back(), "ap_07") < 0.2);
  }

  TEST_CASE("parts that do not fit together are named with their place") {
    const BoxesRun run(5, 2);
    const auto refused = [&](const Arguments& more, const std::string& what) {
      const Outcome o = run.Train(With(more, {"--output", "none"}));
      ADA_CHECK_EXIT(o, 2);
      INFO(o.err);
      CHECK(Contains(o.err, what));
    };
    refused({"--set", "task=segmentation"},
            "data.dataset: voc is for task detection, and the task is segmentation");
    refused({"--set", "detection.boxes=ssd300"},
            "detection.boxes: these default boxes are of "
            "images of 300 x 300 pixels, and those of this run are 48 x 48 pixels");
    refused({"--set", "detection.boxes.grids=[6, 3, 2]"}, "expected 3 for 3 feature maps");
    refused({"--set", "data.resize=[48, 40]"}, "the default boxes are of square images");
    refused({"--set", "train.class_weights=median_frequency"},
            "train.class_weights: belongs to task segmentation");
    refused({"--set", "train.label_smoothing=0.1"}, "belongs to task classification");
    refused({"--set", "detection.boxes.aspect_ratios=[[2], [2, 3]]"},
            "detection.boxes: these are 198 default boxes, and the network gives 180");
  }
}

}  // namespace
}  // namespace ada::testing
