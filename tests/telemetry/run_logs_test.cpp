// RunLogs: the columns of INTERFACE with values worked out by hand, resumes, kills, full disks.
#include "telemetry/run_logs.h"

#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "telemetry/csv_reader.h"
#include "temp_folder.h"

using ada::TensorStats;
using ada::scaling::Limit;
using ada::scaling::ScaleDecision;
using ada::telemetry::CsvReader;
using ada::telemetry::RunLogs;
using ada::testing::TempFolder;

namespace {

const std::vector<std::string> kAll = {"steps.csv",  "scales.csv",     "underflow.csv",
                                       "events.csv", "evaluation.csv", "timing.csv"};

std::string LastLine(const std::string& text) {
  const std::size_t end = text.size() - 1;
  return text.substr(text.rfind('\n', end - 1) + 1, end - text.rfind('\n', end - 1) - 1);
}

TensorStats SomeStats() {
  TensorStats stats;
  stats.numel = 1000;
  stats.zeros_before = 200;
  stats.zeros_after = 240;
  stats.underflow = 40;
  stats.below_min = 230;
  stats.subnormal = 100;
  stats.overflow = 3;
  stats.inf = 1;
  stats.nan = 2;
  stats.min_abs = 0x1p-20f;
  stats.max_abs = 0x1p10f;
  stats.mean = 8;
  stats.std = 4;
  stats.l1 = 160;
  stats.l2 = 1600;
  stats.full = true;
  return stats;
}

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
  RunLogs logs(folder, {});
  if (write(ready, "x", 1) != 1) _exit(1);
  for (std::int64_t step = 1;; ++step) {
    WriteStep(logs, step);
    if (step % 50 == 0) logs.Flush();
  }
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("columns are INTERFACE's") {
    const TempFolder folder;
    { RunLogs logs(folder.path(), {}); }
    CHECK(folder.Read("steps.csv") ==
          "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n");
    CHECK(folder.Read("scales.csv") ==
          "step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit\n");
    CHECK(folder.Read("underflow.csv") ==
          "step,epoch,layer,tensor,format,scale,numel,zeros_before,zeros_after,underflow,"
          "underflow_pct_nonzero,underflow_pct_numel,below_min_pct,subnormal,overflow,inf,nan,"
          "min_abs,max_abs,mean,std,l1,l2,range_log2,mse,sqnr_db\n");
    CHECK(folder.Read("events.csv") == "step,epoch,event,layer,tensor,value,message\n");
    CHECK(folder.Read("evaluation.csv") == "step,epoch,split,images,loss,top1,top5\n");
    CHECK(folder.Read("timing.csv") ==
          "step,seconds,images_per_second,data,forward,backward,update,log\n");
  }

  TEST_CASE("rows of steps, events, evaluation, timing") {
    const TempFolder folder;
    {
      RunLogs logs(folder.path(), {});
      logs.Step({3, 1, 2.302585092994046, 0.1015625, 0.1, 65536, true, true, INFINITY});
      logs.Event({3, 1, "skip", "conv1", "dw", "inf", "first, of 2"});
      logs.Evaluation({3, 1, "validation", 5000, 1.25, 0.5, 0.9375});
      logs.Timing({3, 1.5, 300, 0.1, 0.2, 0.3, 0.4, 0.5});
    }
    CHECK(LastLine(folder.Read("steps.csv")) == "3,1,2.30258509,0.1015625,0.1,65536,1,1,inf");
    CHECK(LastLine(folder.Read("events.csv")) == "3,1,skip,conv1,dw,inf,\"first, of 2\"");
    CHECK(LastLine(folder.Read("evaluation.csv")) == "3,1,validation,5000,1.25,0.5,0.9375");
    CHECK(LastLine(folder.Read("timing.csv")) == "3,1.5,300,0.1,0.2,0.3,0.4,0.5");
  }

  TEST_CASE("rows of scales.csv") {
    struct Case {
      ScaleDecision decision;
      const char* row;
    };
    const double u = 56.418937210;
    const std::vector<Case> cases = {
        {{8, u, 16, 16, 16, 128, Limit::kScaleBound}, "8,56.4189372,16,16,16,128,SB"},
        {{0.1f, u, u, 32, 32, 3.2f, Limit::kTarget},
         "0.10000000149011612,56.4189372,56.4189372,32,32,3.200000047683716,target"},
        {{128, NAN, NAN, NAN, 1, 128, Limit::kNone}, "128,,,,1,128,none"},
        {{128, 3, NAN, 2, 2, 256, Limit::kFixed}, "128,3,,2,2,256,fixed"},
        {{64, NAN, NAN, NAN, 1, 64, Limit::kNonfinite}, "64,,,,1,64,nonfinite"},
        {{64, 1, 1, 1, 0.5f, 32, Limit::kBranch}, "64,,,,,32,branch"},
        {{1024, 1, 1, 1, 1, 1024, Limit::kOne}, "1024,1,1,1,1,1024,one"},
        {{1024, 2, 1, 1, 1, 1024, Limit::kAccumBound}, "1024,2,1,1,1,1024,AB"},
        {{1, 0.25, 0.25, 0.25, 0.25f, 0.25f, Limit::kCap}, "1,0.25,0.25,0.25,0.25,0.25,cap"},
        {{1, 4, 4, 4, 4, 4, Limit::kStale}, "1,4,4,4,4,4,stale"},
    };
    for (const Case& c : cases) {
      const TempFolder folder;
      {
        RunLogs logs(folder.path(), {});
        logs.Scale(100, 2, "stage1.block1.conv1", "adaptive", c.decision);
      }
      CHECK(LastLine(folder.Read("scales.csv")) ==
            std::string("100,2,stage1.block1.conv1,adaptive,") + c.row);
    }
  }

  TEST_CASE("rows of underflow.csv") {
    struct Case {
      TensorStats stats;
      double scale;
      const char* row;
    };
    TensorStats zeros;  // nothing but zeros: nothing to lose, no smallest value, no range
    zeros.numel = zeros.zeros_before = zeros.zeros_after = zeros.below_min = 10;
    zeros.full = true;
    TensorStats infinite = SomeStats();
    infinite.max_abs = INFINITY;
    infinite.mean = infinite.std = infinite.l1 = infinite.l2 = NAN;
    TensorStats large = SomeStats();  // sums beyond fp32 stay finite
    large.l2 = 1e60;
    const std::vector<Case> cases = {
        {SomeStats(), 16,
         "16,1000,200,240,40,5,4,23,100,3,1,2,5.96046448e-08,64,0.5,0.25,10,100,30,,"},
        {SomeStats(), 1,
         "1,1000,200,240,40,5,4,23,100,3,1,2,9.53674316e-07,1024,8,4,160,1600,30,,"},
        {zeros, 16, "16,10,10,10,0,,0,100,0,0,0,0,,0,0,0,0,0,,,"},
        {infinite, 1,
         "1,1000,200,240,40,5,4,23,100,3,1,2,9.53674316e-07,inf,nan,nan,nan,nan,inf,,"},
        {large, 0x1p-20,
         "9.5367431640625e-07,1000,200,240,40,5,4,23,100,3,1,2,1,1.07374182e+09,8388608,4194304,"
         "167772160,1.048576e+66,30,,"},
    };
    for (const Case& c : cases) {
      const TempFolder folder;
      {
        RunLogs logs(folder.path(), {});
        logs.Underflow(100, 2, "conv1", "dx", ada::kFp16, c.scale, c.stats);
      }
      CHECK(LastLine(folder.Read("underflow.csv")) == std::string("100,2,conv1,dx,fp16,") + c.row);
    }
    const TempFolder folder;
    RunLogs logs(folder.path(), {});
    CHECK_THROWS_AS(logs.Underflow(1, 1, "conv1", "dx", ada::kFp16, 1, TensorStats()),
                    ada::InternalError);
  }

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

  TEST_CASE("timing.csv, which no checkpoint records, is cut behind the last kept step") {
    const std::string header = std::string(ada::telemetry::kTimingColumns) + "\n";
    const std::string rows = header + "1,1,1,1,1,1,1,1\n20,1,1,1,1,1,1,1\n";
    const std::vector<std::pair<std::string, std::string>> cases = {
        {rows + "26,1,1,1,1,1,1,1\n", rows}, {rows, rows}, {rows + "26,1", rows}, {"", header}};
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
    }
  }
}
