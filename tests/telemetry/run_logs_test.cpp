// RunLogs' files: resumes, kills, full disks.
#include "telemetry/run_logs.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "error.h"
#include "log_rows.h"
#include "telemetry/csv_reader.h"
#include "temp_folder.h"

using ada::scaling::ScaleDecision;
using ada::telemetry::CsvReader;
using ada::telemetry::RunLogs;
using ada::testing::kEverything;
using ada::testing::kOptional;
using ada::testing::SomeStats;
using ada::testing::TempFolder;
using ada::testing::WriteOptional;

namespace {

const std::vector<std::string> kAll = {"steps.csv",  "scales.csv",     "underflow.csv",
                                       "events.csv", "evaluation.csv", "timing.csv"};

// One row of each kind for step `step`.
void WriteStep(RunLogs& logs, std::int64_t step) {
  const std::int64_t epoch = 1 + step / 1000;
  logs.Step({step, epoch, 1.0 / static_cast<double>(step), 0.5, 0.1, 128, false, false, 2});
  ScaleDecision decision;
  decision.scale_in = 128;
  logs.Scale(step, epoch, "stage1.block1.conv1", "adaptive", decision);
  logs.Underflow(step, epoch, "stage1.block1.conv1", "dx", ada::kFp16, 128, SomeStats());
  logs.Event({step, epoch, "skip", "conv1", "dw", "inf", "not finite, \"skipped\""});
  logs.Evaluation({step, epoch, "test", 10000, 0.5, 0.25, 0.75});
  logs.Timing({step, 1.5, 300, 0.1, 0.2, 0.3, 0.4, 0.5});
}

// A kill ends a write at a page border of the file: the only place where a row may be torn. Checks
// that nothing else is, and takes such a row away.
void DropRowTornAtPageBorder(const TempFolder& folder, const std::string& name) {
  const std::string text = folder.Read(name);
  if (text.ends_with('\n')) return;
  CHECK(text.size() % 4096 == 0);
  folder.Write(name, text.substr(0, text.rfind('\n') + 1));
}

// Rows of a CSV, each checked for its number of fields; the last step in `last`.
std::int64_t CountRows(const std::string& path, std::int64_t* last) {
  CsvReader reader(path);
  std::int64_t rows = 0;
  *last = 0;
  while (reader.Next()) {
    ++rows;
    *last = reader.Integer(0);
  }
  return rows;
}

[[noreturn]] void WriteForEver(const std::string& folder, int ready) {
  RunLogs logs(folder, {}, kEverything);
  if (write(ready, "x", 1) != 1) _exit(1);
  for (std::int64_t step = 1;; ++step) {
    WriteStep(logs, step);
    WriteOptional(logs, step);
    if (step % 50 == 0) logs.Flush();
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("a resumed run's files equal those of one that never stopped") {
    const TempFolder whole, resumed;
    {
      RunLogs logs(whole.path(), {});
      for (int step = 1; step <= 60; ++step) WriteStep(logs, step);
    }
    std::map<std::string, std::int64_t> lengths;
    {
      RunLogs logs(resumed.path(), {});
      for (int step = 1; step <= 25; ++step) WriteStep(logs, step);
      lengths = logs.Sync();
      for (int step = 26; step <= 40; ++step) WriteStep(logs, step);
    }
    std::set<std::string> names;
    for (const auto& [name, length] : lengths) names.insert(name);
    CHECK(names == std::set<std::string>{"steps.csv", "scales.csv", "underflow.csv", "events.csv",
                                         "evaluation.csv"});
    {
      RunLogs logs(resumed.path(), lengths);
      for (int step = 26; step <= 60; ++step) WriteStep(logs, step);
    }
    for (const std::string& name : kAll) {
      CAPTURE(name);
      CHECK((whole.Read(name) == resumed.Read(name)));
    }
  }

  TEST_CASE("timing.csv, which no checkpoint records, is cut after the last kept step") {
    const std::string header = ada::telemetry::Header<ada::telemetry::TimingRow>() + "\n";
    const std::string rows = header + "1,1,1,1,1,1,1,1,1\n20,1,1,1,1,1,1,1,1\n";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {rows + "26,1,1,1,1,1,1,1,1\n", rows}, {rows, rows}, {rows + "26,1", rows}, {"", header}};
    for (const auto& [found, kept] : cases) {
      const TempFolder folder;
      std::map<std::string, std::int64_t> lengths;
      {
        RunLogs logs(folder.path(), {});
        for (int step = 1; step <= 25; ++step) WriteStep(logs, step);
        lengths = logs.Sync();
      }
      folder.Write("timing.csv", found);
      { RunLogs logs(folder.path(), lengths); }
      CHECK(folder.Read("timing.csv") == kept);
      std::filesystem::remove(folder / "timing.csv");
      { RunLogs logs(folder.path(), lengths); }
      CHECK(folder.Read("timing.csv") == header);
    }
  }

  TEST_CASE("starting afresh empties old logs; lengths without a file are refused") {
    const TempFolder folder;
    std::map<std::string, std::int64_t> lengths;
    {
      RunLogs logs(folder.path(), {});
      WriteStep(logs, 1);
      lengths = logs.Sync();
    }
    lengths.erase("events.csv");
    CHECK_THROWS_AS(RunLogs(folder.path(), lengths), ada::DataError);
    { RunLogs logs(folder.path(), {}); }
    std::int64_t last = 0;
    for (const std::string& name : kAll) CHECK(CountRows(folder / name, &last) == 0);
  }

  TEST_CASE("each file on a full disk is named") {
    for (const std::string& name : kAll) {
      const TempFolder folder;
      std::filesystem::create_symlink("/dev/full", folder / name);
      const std::string message = folder / name +
                                  ": cannot be written: No space left on device; make room, then "
                                  "go on with --resume from the last checkpoint";
      CHECK_THROWS_WITH_AS(RunLogs(folder.path(), {}), message.c_str(), ada::OutputError);
    }
  }

  TEST_CASE("killed at any moment, the files hold whole rows") {
    for (int delay = 1; delay <= 20; ++delay) {
      const TempFolder folder;
      int ready[2];
      REQUIRE(pipe(ready) == 0);
      const pid_t child = fork();
      if (child == 0) WriteForEver(folder.path(), ready[1]);
      char go = 0;
      REQUIRE(read(ready[0], &go, 1) == 1);
      std::this_thread::sleep_for(std::chrono::milliseconds(delay * 3));
      kill(child, SIGKILL);
      int status = 0;
      waitpid(child, &status, 0);
      CHECK(WIFSIGNALED(status));
      close(ready[0]);
      close(ready[1]);
      for (const std::string& name : kAll) DropRowTornAtPageBorder(folder, name);
      std::int64_t last_of_steps = 0;
      const std::int64_t steps = CountRows(folder / "steps.csv", &last_of_steps);
      CHECK(steps == last_of_steps);
      for (const std::string& name : kAll) {
        std::int64_t last = 0;
        CHECK(CountRows(folder / name, &last) == last);
        CHECK(last >= last_of_steps);  // steps.csv is written last
      }
      for (const std::string& name : kOptional) {
        DropRowTornAtPageBorder(folder, name);
        std::int64_t last = 0;
        const std::int64_t rows_a_step = name == "histograms.csv" ? 5 : 1;
        const std::int64_t rows = CountRows(folder / name, &last);
        CHECK((rows + rows_a_step - 1) / rows_a_step == last);
        CHECK(last >= last_of_steps);
      }
    }
  }
}
