// Signals and kills at any moment: the run goes on as if nothing had happened.
#include <chrono>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "train/shell.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

using Arguments = std::vector<std::string>;
constexpr const char* kLong = "train.epochs=40";  // 240 steps: time enough for a signal
constexpr const char* kFewCheckpoints =
    "checkpoint={every_steps: 16, every_epochs: 0, keep: 3, best: true}";

// Sends `number` once steps.csv has `rows` rows (or more: whole log intervals appear together).
Outcome Interrupt(const Arguments& arguments, const TempFolder& folder, const std::string& run,
                  std::int64_t rows, int number) {
  Child child(arguments, folder.path());
  const std::string steps = folder / (run + "/steps.csv");
  if (!child.WaitUntil([&] { return RowCount(steps) >= rows; })) return child.Wait();
  child.Signal(number);
  return child.Wait();
}

std::int64_t NewestStep(const std::string& run) {
  const std::string path = NewestCheckpoint(run, ".json");
  return nlohmann::json::parse(ReadBytes(path)).at("step").get<std::int64_t>();
}

TEST_SUITE("cpu") {
  TEST_CASE("a signal that asks for the end writes a checkpoint; the resumed run is undisturbed") {
    const TempFolder folder;
    const Arguments length = {"--set", kLong, "--set", kFewCheckpoints};
    ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "whole", SmallRun()), length), folder.path()), 0);
    const Arguments parts = With(WriteConfig(folder, "parts", SmallRun()), length);
    struct Stop {
      std::int64_t rows;
      int number, code;
    };
    for (const Stop& stop : {Stop{1, SIGTERM, 143},
                             {30, SIGINT, 130},
                             {60, SIGHUP, 129},
                             {80, SIGXCPU, 152},
                             {100, SIGUSR1, 138},
                             {120, SIGUSR2, 140},
                             {140, SIGTERM, 143}}) {
      CAPTURE(stop.rows);
      const Outcome o =
          Interrupt(With(parts, {"--resume"}), folder, "parts", stop.rows, stop.number);
      ADA_REQUIRE_EXIT(o, stop.code);
      CHECK(Contains(o.err, "--resume"));
      CHECK(NewestStep(folder / "parts") == RowCount(folder / "parts/steps.csv"));
      CHECK(Summary(folder / "parts").at("status") == "interrupted");
    }
    ADA_REQUIRE_EXIT(Run(With(parts, {"--resume"}), folder.path()), 0);
    CHECK(Differences(folder / "whole", folder / "parts") == std::vector<std::string>{});
  }

  // These come again by themselves: only SIGINT and SIGTERM end at once the second time.
  TEST_CASE("signals again and again end with a checkpoint; ignored they end nothing") {
    for (const int number : {SIGHUP, SIGXCPU, SIGUSR1, SIGUSR2, SIGALRM, SIGPWR}) {
      for (const bool ignored : {false, true}) {
        CAPTURE(number);
        CAPTURE(ignored);
        const TempFolder folder;
        const Arguments run = With(WriteConfig(folder, "run", SmallRun()),
                                   {"--set", ignored ? "train.epochs=20" : "train.epochs=4000"});
        Child child(run, folder.path(), [&] {
          if (ignored) signal(number, SIG_IGN);
        });
        const std::string steps = folder / "run/steps.csv";
        REQUIRE(child.WaitUntil([&] { return RowCount(steps) >= 1; }));
        // Until the program has ended, which the looks of WaitUntil find out.
        CHECK_FALSE(child.WaitUntil([&] {
          child.Signal(number);
          return false;
        }));
        const Outcome o = child.Wait();
        ADA_REQUIRE_EXIT(o, ignored ? 0 : 128 + number);
        CHECK(NewestStep(folder / "run") == RowCount(steps));
      }
    }
  }

  TEST_CASE(
      "a closed pipe ends with a checkpoint and 141; the resumed run is the undisturbed one") {
    const TempFolder folder;
    const Arguments length = {"--set", kLong, "--set", kFewCheckpoints};
    ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "whole", SmallRun()), length), folder.path()), 0);
    WriteConfig(folder, "parts", SmallRun());
    const auto piped = [&](const std::string& arguments) {
      return Shell(
          folder, std::string("bash -c '\"$0\" --config parts.yaml --output parts --set ") + kLong +
                      " " + arguments + "; exit ${PIPESTATUS[0]}' \"$ADA\"");
    };
    ADA_CHECK_EXIT(piped("2>&1 | head -n 3"), 141);
    const std::int64_t stopped = NewestStep(folder / "parts");
    CHECK(stopped == RowCount(folder / "parts/steps.csv"));
    CHECK(stopped < 240);
    CHECK(Contains(ReadBytes(folder / "parts/log.txt"), "stopped by a closed pipe"));
    CHECK(Summary(folder / "parts").at("status") == "interrupted");
    // The summary alone meets the closed pipe: the run has come to its end.
    ADA_CHECK_EXIT(
        piped("--resume --set \"" + std::string(kFewCheckpoints) + "\" 2>/dev/null | true"), 141);
    CHECK(Summary(folder / "parts").at("status") == "finished");
    CHECK(ReadBytes(folder / "parts/steps.csv") == ReadBytes(folder / "whole/steps.csv"));
    CHECK(ReadBytes(NewestCheckpoint(folder / "parts")) ==
          ReadBytes(NewestCheckpoint(folder / "whole")));
    // Who ignores the signal wants the run to go on.
    ADA_CHECK_EXIT(piped("--overwrite --set train.epochs=3 2>&1 | true"), 141);
    ADA_CHECK_EXIT(Shell(folder,
                         "bash -c 'trap \"\" PIPE; \"$0\" --config parts.yaml --output parts "
                         "--overwrite --set train.epochs=3 2> >(true) >out.txt' \"$ADA\""),
                   0);
    CHECK(Summary(folder / "parts").at("status") == "finished");
  }

  TEST_CASE("kill -9, twice") {
    const TempFolder folder;
    const Arguments length = {"--set", kLong, "--set", kFewCheckpoints};
    ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "whole", SmallRun()), length), folder.path()), 0);
    const Arguments parts = With(WriteConfig(folder, "parts", SmallRun()), length);
    for (const std::int64_t rows : {10, 60}) {
      const Outcome o = Interrupt(With(parts, {"--resume"}), folder, "parts", rows, SIGKILL);
      REQUIRE(o.signal == SIGKILL);
    }
    ADA_REQUIRE_EXIT(Run(With(parts, {"--resume"}), folder.path()), 0);
    CHECK(Differences(folder / "whole", folder / "parts") == std::vector<std::string>{});
  }
}

TEST_SUITE("slow") {
  TEST_CASE("kill -9 at random moments, again and again") {
    const std::string scalings[] = {
        "{policy: adaptive, update_interval: 3}",
        "{policy: dynamic, init_scale: 1e9, growth_interval: 4}",
    };
    std::mt19937 random(20);  // the moments differ all the same: the machine's load decides
    for (const std::string& scaling : scalings) {
      const TempFolder folder;
      const Arguments extra = {"--set", kLong,
                               "--set", "scaling=" + scaling,
                               "--set", "schedule={kind: cosine, warmup: {epochs: 2, lr: 0.01}}",
                               "--set", "optimizer={kind: adamw, lr: 2e-3}"};
      const auto start = std::chrono::steady_clock::now();
      ADA_REQUIRE_EXIT(Run(With(WriteConfig(folder, "whole", SmallRun()), extra), folder.path()),
                       0);
      const std::chrono::duration<double> whole = std::chrono::steady_clock::now() - start;
      for (int round = 0; round < 5; ++round) {
        CAPTURE(round);
        const std::string name = "parts" + std::to_string(round);
        const Arguments parts =
            With(With(WriteConfig(folder, name, SmallRun()), extra), {"--resume"});
        // One kill in the middle of the run is certain, whatever the load; up to 20 more follow at
        // random moments, before the first step too, until the run happens to finish.
        const Outcome first = Interrupt(parts, folder, name, 1 + round * 20, SIGKILL);
        REQUIRE(first.signal == SIGKILL);
        std::uniform_real_distribution<double> moment(0, 0.7 * whole.count());
        for (int i = 0; i < 20; ++i) {
          Child child(parts, folder.path());
          std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
          child.Signal(SIGKILL);
          const Outcome o = child.Wait();
          if (o.signal == 0) {
            ADA_REQUIRE_EXIT(o, 0);
            break;
          }
        }
        ADA_REQUIRE_EXIT(Run(parts, folder.path()), 0);
        CHECK(Differences(folder / "whole", folder / name) == std::vector<std::string>{});
      }
    }
  }
}

}  // namespace
}  // namespace ada::testing
