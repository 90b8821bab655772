// Runs that cannot start or cannot go on: each kind of failure has its exit code, says what to do,
// and leaves what was there intact.
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "sanitizer.h"
#include "thread_limit.h"
#include "train/shell.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

TEST_SUITE("cpu") {
  TEST_CASE("checked in the order config, device, data, output folder") {
    const TempFolder folder;
    const std::string no_data =
        Replaced(SmallRun(),
                 "  dataset: synthetic\n  synthetic: {height: 12, width: 12, channels: "
                 "3, classes: 10, train: 130, test: 30}\n",
                 "  dataset: cifar10\n  path: nowhere\n");
    folder.Write("run.yaml", no_data);
    folder.Write("synthetic.yaml", SmallRun());
    const Arguments run = {"--config", "run.yaml", "--output", "run.yaml/x"};
    const Outcome config = Run(With(run, {"--device", "cuda", "--set", "seed=-1"}), folder.path());
    ADA_CHECK_EXIT(config, 2);
    CHECK(Contains(config.err, "seed"));
    const Outcome device = Run(With(run, {"--device", "cuda"}), folder.path());
    ADA_CHECK_EXIT(device, 4);
    CHECK(Contains(device.err, "device.kind: cpu"));
    const Outcome data = Run(run, folder.path());
    ADA_CHECK_EXIT(data, 3);
    CHECK(Contains(data.err, "nowhere"));
    CHECK(Contains(data.err, "ada-train fetch"));
    const Outcome output =
        Run({"--config", "synthetic.yaml", "--output", "run.yaml/x"}, folder.path());
    ADA_CHECK_EXIT(output, 6);
    CHECK(Contains(output.err, "run.yaml/x"));
  }

  TEST_CASE("weights and checkpoints that cannot be read are exit code 3") {
    const TempFolder folder;
    folder.Write("text.safetensors", "no tensors here");
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    for (const char* file : {"missing.safetensors", "text.safetensors"}) {
      const Outcome weights =
          Run(With(run, {"--set", std::string("model.init.weights=") + file}), folder.path());
      ADA_CHECK_EXIT(weights, 3);
      CHECK(Contains(weights.err, file));
      const Outcome checkpoint = Run({"evaluate", "--checkpoint", file}, folder.path());
      ADA_CHECK_EXIT(checkpoint, 3);
    }
  }

  TEST_CASE("folders that hold no run are exit code 3") {
    const TempFolder folder;
    folder.Write("empty/nothing.txt", "");
    folder.Write("file", "no folder");
    const Arguments without = {"--set", "log.histogram_every=0"};
    ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "run", SmallRun()), without), folder.path()), 0);
    for (const std::string place : {"missing", "empty", "file"}) {
      for (const Arguments& command : {Arguments{"what-if", place},
                                       {"recommend", place},
                                       {"compare", "run", place},
                                       {"compare", place, "run"},
                                       {"watch", place, "--once"}}) {
        CAPTURE(command.front());
        const Outcome o = Run(command, folder.path());
        ADA_CHECK_EXIT(o, 3);
        CHECK(Contains(o.err, place));
        CHECK(o.out.empty());
      }
    }
    // Without histograms recommend gives advise's answer, and says which key gives ranges.
    const Outcome what_if = Run({"what-if", "run"}, folder.path());
    ADA_CHECK_EXIT(what_if, 3);
    CHECK(Contains(what_if.err, "log.histogram_every"));
    const Outcome recommend = Run({"recommend", "run"}, folder.path());
    ADA_CHECK_EXIT(recommend, 0);
    CHECK(Contains(recommend.out, "log.histogram_every"));
  }

  TEST_CASE("a folder with a finished or running run is refused, --overwrite takes the first") {
    const TempFolder folder;
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
    const std::string steps = ReadBytes(folder / "run/steps.csv");
    const Outcome finished = Run(run, folder.path());
    ADA_CHECK_EXIT(finished, 2);
    for (const char* advice : {"--resume", "--overwrite", "--output"})
      CHECK(Contains(finished.err, advice));
    CHECK(ReadBytes(folder / "run/steps.csv") == steps);

    Child running(With(run, {"--overwrite", "--set", "train.epochs=100000"}), folder.path());
    REQUIRE(running.WaitUntil([&] {
      return std::filesystem::exists(folder / "run/steps.csv") &&
             RowCount(folder / "run/steps.csv") >= 3 &&
             !std::filesystem::exists(folder / "run/summary.json");
    }));
    const TempFolder elsewhere;  // another place for the second process's output
    const std::string place = folder / "run", config = folder / "run.yaml";
    for (const std::string flag : {"--quiet", "--resume", "--overwrite"}) {
      CAPTURE(flag);
      const Outcome o = Run({"--config", config, "--output", place, flag}, elsewhere.path());
      ADA_CHECK_EXIT(o, 2);
      CHECK(Contains(o.err, "running"));
    }
    running.Signal(SIGKILL);
    CHECK(running.Wait().signal == SIGKILL);  // it was not disturbed
    ADA_CHECK_EXIT(Run(With(run, {"--overwrite"}), folder.path()), 0);
    CHECK(ReadBytes(folder / "run/steps.csv") == steps);
  }

  TEST_CASE("stop_after_skips ends a run that overflows without end, with advice") {
    const TempFolder folder;
    const Outcome o = Run(With(WriteConfig(folder, "run", SmallRun()),
                               {"--set", "scaling={policy: fixed, scale: 1e30}", "--set",
                                "train.stop_after_skips=5"}),
                          folder.path());
    ADA_CHECK_EXIT(o, 5);
    for (const char* advice : {"train.stop_after_skips", "scaling.scale", "events.csv"})
      CHECK(Contains(o.err, advice));
    const Table steps = ReadCsv(folder / "run/steps.csv"),
                events = ReadCsv(folder / "run/events.csv");
    CHECK(steps.size() == 5);
    CHECK(RowsWhere(steps, "skipped", "1").size() == 5);
    REQUIRE(events.size() == 5);
    for (const GoldenRow& event : events) {
      CHECK(event.at("event") == "skip");
      CHECK(event.at("layer") == "loss");
      CHECK(event.at("tensor") == "dx");
    }
    CHECK(Summary(folder / "run").at("status") == "stopped");
  }

  TEST_CASE("a skipped step names the first layer that overflowed, not the last") {
    // alpha of fc is 2^26: the logit gradient fits, what fc makes of it does not.
    const TempFolder folder;
    const Outcome o =
        Run(With(WriteConfig(folder, "run", SmallRun()),
                 {"--set", "train.max_steps=2", "--set",
                  "scaling={policy: adaptive, layers: [{match: fc, method: fixed, scale: "
                  "67108864}]}"}),
            folder.path());
    ADA_CHECK_EXIT(o, 0);
    const Table events = RowsWhere(ReadCsv(folder / "run/events.csv"), "event", "skip");
    REQUIRE(events.size() == 2);
    CHECK(events.back().at("layer") == "fc");
    CHECK(events.back().at("tensor") == "dx");
    CHECK(std::stod(events.back().at("value")) > 65504);
  }

  TEST_CASE("a disk that fills up is exit code 6; the earlier checkpoint goes on") {
    const TempFolder folder;
    const Arguments logs = {"--set", "log.every=1"};  // so that a log hits the limit first
    ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "whole", SmallRun()), logs), folder.path()), 0);
    const auto largest =
        static_cast<std::int64_t>(std::filesystem::file_size(NewestCheckpoint(folder / "whole")));
    const auto log =
        static_cast<std::int64_t>(std::filesystem::file_size(folder / "whole/underflow.csv"));
    REQUIRE(log > 1.5 * static_cast<double>(largest));
    const Arguments run = With(WriteConfig(folder, "full", SmallRun()), logs);
    const Outcome o = Run(run, folder.path(), (largest + log) / 2);
    ADA_CHECK_EXIT(o, 6);
    CHECK(Contains(o.err, "underflow.csv"));
    CHECK(Contains(o.err, "File too large"));
    CHECK(!Checkpoints(folder / "full", ".json").empty());
    ADA_CHECK_EXIT(Run(With(run, {"--resume"}), folder.path()), 0);
    CHECK(Differences(folder / "whole", folder / "full") == std::vector<std::string>{});
    // A checkpoint that does not fit leaves no half of itself.
    ADA_CHECK_EXIT(Run(With(run, {"--overwrite"}), folder.path(), largest / 2), 6);
    CHECK(Checkpoints(folder / "full", "").empty());
  }

  TEST_CASE("threads that cannot start are exit code 4, whichever it is, with what to do") {
    const TempFolder folder;
    const Arguments run = With(WriteConfig(folder, "run", SmallRun()),
                               {"--threads", "3", "--overwrite", "--set", "train.max_steps=1"});
    ADA_REQUIRE_EXIT(Run(run, folder.path()), 0);
    int refused = 0;
    for (int threads = 1; threads <= 6; ++threads) {
      CAPTURE(threads);
      const auto limit = [threads] {
        alarm(60);  // a run that hangs
        LimitThreads(threads);
      };
      const Outcome o = Child(run, folder.path(), limit).Wait();
      CAPTURE(o.code);
      CAPTURE(o.err);
      CHECK((o.code == 0 || o.code == 4));
      if (o.code != 4) continue;
      ++refused;
      for (const char* advice : {"thread", "--threads", "ulimit -u"})
        CHECK(Contains(o.err, advice));
    }
    CHECK(refused >= 1);
  }

  TEST_CASE("standard output that cannot be written is exit code 6") {
    const TempFolder folder;
    const Arguments run = WriteConfig(folder, "run", SmallRun());
    for (const Arguments& arguments :
         {Arguments{"models"}, {"schema"}, {"--version"}, With(run, {"--print-config"})})
      CHECK((kThreadSanitizer || Run(arguments, folder.path(), 0).code == 6));
    // LLVM's OpenMP, which clang links, ends a program that may not write a file of 1,024 bytes.
    CHECK(Run(With(run, {"--dry-run"}), folder.path(), 1024).code == 6);
    const Outcome full = Shell(folder, "$ADA train run.yaml --output run >/dev/full");
    ADA_CHECK_EXIT(full, 6);
    CHECK(Contains(full.err, "standard output cannot be written: No space left on device"));
    CHECK(Summary(folder / "run").at("status") == "finished");
  }
}

}  // namespace
}  // namespace ada::testing
