// `init_scale: auto` through the program: what is chosen, that choosing leaves no trace, and that a
// resumed run goes on with it.
#include <doctest/doctest.h>

#include <cmath>

#include "temp_folder.h"
#include "train/program.h"
#include "train/run_files.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

// Trains the small run with `settings` and returns its folder.
std::string Train(const TempFolder& folder, const std::string& name, const Arguments& settings,
                  const Arguments& more = {}) {
  Arguments arguments = WriteConfig(folder, name, SmallRun());
  for (const std::string& setting : settings) arguments = With(arguments, {"--set", setting});
  ADA_REQUIRE_EXIT(Run(With(arguments, more), folder.path()), 0);
  return folder / name;
}

double LargestLogitGradient(const std::string& run) {
  for (const GoldenRow& row : RowsWhere(ReadCsv(run + "/underflow.csv"), "layer", "loss"))
    if (row.at("tensor") == "dx") return Number(row, "max_abs");
  throw std::runtime_error("no row of loss.dx");
}

TEST_SUITE("cpu") {
  TEST_CASE("init_scale auto: the first batch's largest gradient of the logits, with headroom") {
    for (const auto& [policy, format, u_max] :
         std::vector<std::tuple<std::string, std::string, double>>{
             {"none", "fp16", 65504},
             {"dynamic", "fp8_e5m2", 57344},
             {"layerwise_dynamic", "fp8_e4m3", 448},
             {"adaptive, method: exact_range", "fp16", 65504}}) {
      CAPTURE(policy);
      const std::string& scaling = policy;
      const TempFolder folder;
      const Arguments settings = {"precision.gradients=" + format, "train.accumulate=1",
                                  "train.max_steps=7"};
      const auto with = [&](const std::string& start) {
        return With(settings, {"scaling={policy: " + scaling + ", init_scale: " + start + "}"});
      };
      // The gradient that the run itself has counted, before it was rounded.
      const double largest = LargestLogitGradient(Train(folder, "one", with("1")));
      const double expected = std::exp2(std::floor(std::log2(u_max / 16 / largest)));
      const std::string automatic = Train(folder, "auto", with("auto"));
      const Table events = RowsWhere(ReadCsv(automatic + "/events.csv"), "event", "init_scale");
      REQUIRE(events.size() == 1);
      CHECK(events[0].at("step") == "1");
      CHECK(Number(events[0], "value") == expected);
      // A run that starts with that number has the same bytes everywhere else.
      const std::string number =
          Train(folder, "number", with(std::to_string(static_cast<std::int64_t>(expected))));
      for (const char* file : {"steps.csv", "scales.csv", "underflow.csv", "evaluation.csv"})
        CHECK(ReadBytes(automatic + "/" + file) == ReadBytes(number + "/" + file));
      CHECK(ReadBytes(NewestCheckpoint(automatic)) == ReadBytes(NewestCheckpoint(number)));
    }
  }

  TEST_CASE("init_scale auto: the gradients of images with two labels") {
    const TempFolder folder;
    const auto with = [&](const std::string& start) {
      return Arguments{"scaling={policy: none, init_scale: " + start + "}",
                       "train.accumulate=1",
                       "train.max_steps=1",
                       "data.batch_size=2",
                       "data.augment.mixup={alpha: 9}",
                       "seed=4"};
    };
    const double largest = LargestLogitGradient(Train(folder, "one", with("1")));
    const double label = LargestLogitGradient(
        Train(folder, "plain", With(with("1"), {"data.augment.mixup={alpha: 0}"})));
    const auto start = [](double gradient) {
      return std::exp2(std::floor(std::log2(65504 / 16.0 / gradient)));
    };
    CHECK(start(largest) != start(label));
    const std::string automatic = Train(folder, "auto", with("auto"));
    const Table events = RowsWhere(ReadCsv(automatic + "/events.csv"), "event", "init_scale");
    REQUIRE(events.size() == 1);
    CHECK(Number(events[0], "value") == start(largest));
  }

  TEST_CASE("init_scale auto: a resumed run goes on with what was chosen") {
    const TempFolder folder;
    const Arguments settings = {"scaling={policy: adaptive, init_scale: auto}"};
    const std::string whole = Train(folder, "whole", settings);
    Train(folder, "parts", settings, {"--set", "train.max_steps=4"});
    const std::string parts = Train(folder, "parts", settings, {"--resume"});
    CHECK(Differences(whole, parts, Ends::kSeveral) == std::vector<std::string>{});
    const Outcome o = Run(With(WriteConfig(folder, "parts", SmallRun()),
                               {"--resume", "--set", "scaling.init_scale=2"}),
                          folder.path());
    ADA_CHECK_EXIT(o, 2);
  }

  TEST_CASE("init_scale auto where no run starts is refused") {
    const TempFolder folder;
    const std::string scenario = "{name: a, scaling: {policy: none, init_scale: auto}}";
    const Arguments run = WriteConfig(
        folder, "run",
        std::string(kSmallNetwork) + "log: {histogram_every: 1, what_if: [" + scenario + "]}\n");
    const Outcome o = Run(run, folder.path());
    ADA_CHECK_EXIT(o, 2);
    CHECK(Contains(o.err, "auto"));
    CHECK(Contains(o.err, "run.yaml"));
    const Outcome bad =
        Run(With(WriteConfig(folder, "bad", SmallRun()), {"--set", "scaling.init_scale=automatic"}),
            folder.path());
    ADA_CHECK_EXIT(bad, 2);
    CHECK(Contains(bad.err, "or auto"));
  }
}

}  // namespace
}  // namespace ada::testing
