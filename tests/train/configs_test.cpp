// Every shipped configuration trains: two steps on made-up images of its data set's shape, and then
// evaluates.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "train/made_up_sets.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

std::vector<std::string> ShippedConfigs() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(ADA_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path().string());
  std::sort(paths.begin(), paths.end());
  return paths;
}

// The value of "  key: value" in the resolved configuration, without a comment after it.
std::string Value(const std::string& yaml, const std::string& key) {
  const std::size_t at = yaml.find("\n  " + key + ": ");
  REQUIRE(at != std::string::npos);
  const std::size_t begin = at + key.size() + 5;
  const std::string line = yaml.substr(begin, yaml.find('\n', begin) - begin);
  return line.substr(0, line.find("  # "));
}

// Everything below `data:` that a made-up data set needs too stays as the file has it.
std::vector<std::string> Synthetic(const std::string& dataset) {
  const std::map<std::string, std::string> shapes = {
      {"cifar10", "{height: 32, width: 32, channels: 3, classes: 10, train: 384, test: 32}"},
      {"cifar100", "{height: 32, width: 32, channels: 3, classes: 100, train: 384, test: 32}"},
      {"mnist", "{height: 28, width: 28, channels: 1, classes: 10, train: 384, test: 32}"},
      {"synthetic", "{height: 32, width: 32, channels: 3, classes: 10, train: 384, test: 32}"},
      {"fashion_mnist", "{height: 28, width: 28, channels: 1, classes: 10, train: 384, test: 32}"},
  };
  REQUIRE(shapes.contains(dataset));
  return {"--set", "data.dataset=synthetic", "--set", "data.synthetic=" + shapes.at(dataset)};
}

// A network for large images is planned, with small batches, and not trained here.
void CheckPlan(const std::string& path, const std::string& folder) {
  const Outcome plan = Run(With({"--config", path, "--dry-run", "--set", "data.batch_size=2",
                                 "--set", "data.evaluate_batch_size=2"},
                                Synthetic("cifar10")),
                           folder);
  ADA_REQUIRE_EXIT(plan, 0);
  CHECK(plan.out.find("training and 32 test images of 224x224x3") != std::string::npos);
  CHECK(plan.out.find("steps     192 an epoch, 17280 in all") != std::string::npos);
  CHECK(plan.out.find("warning   " + path) == std::string::npos);
}

// Networks for pixels and boxes are planned on small sets of the layouts.
void CheckTaskPlan(const std::string& path, const TempFolder& folder, const std::string& dataset) {
  constexpr int kCamvidIgnores = 11;
  std::vector<std::string> more = {"--config",
                                   path,
                                   "--dry-run",
                                   "--data",
                                   "shapes",
                                   "--set",
                                   "data.batch_size=2",
                                   "--set",
                                   "data.evaluate_batch_size=2"};
  if (dataset == "camvid") {
    WriteCamvid(folder, "shapes", 6, 2, kCamvidIgnores);
  } else {
    WriteVoc(folder, "shapes", 6, 2);
    more = With(more, {"--set", "model.init={}"});  // without the weights that it starts from
  }
  const Outcome plan = Run(more, folder.path());
  ADA_REQUIRE_EXIT(plan, 0);
  INFO(plan.out);
  CHECK(Contains(plan.out, "steps     3 an epoch, "));
  CHECK(Contains(plan.out, dataset == "camvid" ? "cast  " : "cast.scores"));
  CHECK(!Contains(plan.out, "warning   " + path));
}

// A language model trains two steps on a made-up text, in small batches.
void CheckText(const std::string& path, const TempFolder& folder) {
  std::string text;
  for (int i = 0; text.size() < 4000; ++i) text += "line " + std::to_string(i * i) + ": abc\n";
  std::ofstream(folder / "text.txt") << text;
  const Outcome o =
      Run({"--config", path, "--output", "run", "--set", "data.dataset=text", "--data", "text.txt",
           "--set", "data.batch_size=2", "--set", "train.max_steps=2", "--set", "log.every=1"},
          folder.path());
  ADA_REQUIRE_EXIT(o, 0);
  const Table steps = ReadCsv(folder / "run/steps.csv");
  REQUIRE(steps.size() == 2);
  for (const GoldenRow& step : steps)  // of weights that small: near ln(256)
    CHECK(Number(step, "loss") == doctest::Approx(5.545).epsilon(0.02));
  CHECK(ReadCsv(folder / "run/evaluation.csv").size() == 1);
  CHECK(!ReadCsv(folder / "run/underflow.csv").empty());
}

TEST_SUITE("cpu") {
  TEST_CASE("every shipped configuration trains two steps") {
    const std::vector<std::string> paths = ShippedConfigs();
    CHECK(paths.size() >= 35);
    for (const std::string& path : paths) {
      CAPTURE(path);
      const TempFolder folder;
      const Outcome before = Run({"--config", path, "--print-config"}, folder.path());
      ADA_REQUIRE_EXIT(before, 0);
      if (Value(before.out, "dataset") == "folder") {
        CheckPlan(path, folder.path());
        continue;
      }
      const std::string dataset = Value(before.out, "dataset");
      if (dataset == "camvid" || dataset == "voc") {
        CheckTaskPlan(path, folder, dataset);
        continue;
      }
      if (dataset == "jargon") {
        CheckText(path, folder);
        continue;
      }
      const auto synthetic = Synthetic(Value(before.out, "dataset"));
      const Outcome after =
          Run(With({"--config", path, "--print-config"}, synthetic), folder.path());
      ADA_REQUIRE_EXIT(after, 0);
      for (const char* key :
           {"batch_size", "augment", "normalize", "drop_last", "policy", "format"})
        CHECK(Value(after.out, key) == Value(before.out, key));

      const Outcome o = Run(With({"--config", path, "--output", "run", "--set", "train.max_steps=2",
                                  "--set", "log.every=1"},
                                 synthetic),
                            folder.path());
      ADA_REQUIRE_EXIT(o, 0);
      const Table steps = ReadCsv(folder / "run/steps.csv"),
                  evaluations = ReadCsv(folder / "run/evaluation.csv");
      REQUIRE(steps.size() == 2);
      for (const GoldenRow& step : steps) {
        CHECK(Number(step, "loss") > 0);
        CHECK(Number(step, "loss") < 12);  // near ln(classes), at most 1000 of them
      }
      REQUIRE(evaluations.size() == 1);
      CHECK(evaluations[0].at("images") == "32");
      CHECK(!ReadCsv(folder / "run/underflow.csv").empty());
      CHECK(!ReadCsv(folder / "run/scales.csv").empty());
    }
  }
}

}  // namespace
}  // namespace ada::testing
