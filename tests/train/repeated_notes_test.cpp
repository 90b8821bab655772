// What may be said in every step: once, then counted.
#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "record/step_log.h"
#include "train/small_run.h"

namespace ada::testing {
namespace {

// What the console shows of `steps` steps; `notes`: of each, a message or nothing.
std::string Said(int steps, const std::function<std::string(int)>& message) {
  std::FILE* console = std::tmpfile();
  REQUIRE(console != nullptr);
  {
    telemetry::Log log(telemetry::LogLevel::kInfo, fileno(console));
    record::RepeatedNotes notes(log);
    for (int step = 1; step <= steps; ++step) {
      if (const std::string text = message(step); !text.empty()) notes.Add("skip", step, text);
      notes.EndStep(step);
    }
  }
  std::rewind(console);
  std::string text;
  for (int c; (c = std::fgetc(console)) != EOF;) text += static_cast<char>(c);
  std::fclose(console);
  return text;
}

TEST_SUITE("cpu") {
  TEST_CASE("a message with each step: windows of 100, 200, 400 steps") {
    const auto each = [](int step) { return "m" + std::to_string(step); };
    CHECK(Said(100, each) == "step 1: m1\n");
    CHECK(Said(800, each) ==
          "step 1: m1\nstep 101: m101 (100 more times since step 1)\n"
          "step 301: m301 (200 more times since step 101)\n"
          "step 701: m701 (400 more times since step 301)\n");
  }

  TEST_CASE("a few at first, then one now and then: each rare one is said as it comes") {
    CHECK(Said(5000,
               [](int step) {
                 return step <= 3 || step % 2000 == 0 ? "m" + std::to_string(step) : "";
               }) ==
          "step 1: m1\nstep 3: m3 (2 more times since step 1)\nstep 2000: m2000\n"
          "step 4000: m4000\n");
    CHECK(Said(250, [](int step) { return step == 1 || step == 50 ? "m" : ""; }) ==
          "step 1: m\nstep 50: m (1 more time since step 1)\n");
  }

  TEST_CASE("a run that skips each of its 100 steps says so once, and every one in events.csv") {
    const TempFolder folder;
    const Outcome o = Run(With(WriteConfig(folder, "run", SmallRun()),
                               {"--set", "scaling={policy: fixed, scale: 1e12}", "train.epochs=20",
                                "train.max_steps=100", "train.stop_after_skips=0"}),
                          folder.path());
    ADA_CHECK_EXIT(o, 0);
    std::size_t said = 0;
    for (std::size_t at = 0; (at = o.err.find("step skipped", at)) != std::string::npos; ++at)
      ++said;
    CHECK(said == 1);
    CHECK(RowsWhere(ReadCsv(folder / "run/events.csv"), "event", "skip").size() == 100);
    CHECK(Contains(o.out, "100 steps skipped because gradients were not finite"));
  }
}

}  // namespace
}  // namespace ada::testing
