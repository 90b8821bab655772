// RunLogs: the columns with values worked out by hand, whole numbers of real columns
// with `.0`.
#include <doctest/doctest.h>

#include <cmath>
#include <string>
#include <vector>

#include "error.h"
#include "log_rows.h"
#include "telemetry/run_logs.h"
#include "temp_folder.h"

using ada::TensorStats;
using ada::scaling::Limit;
using ada::scaling::ScaleDecision;
using ada::telemetry::ProbeError;
using ada::telemetry::RunLogs;
using ada::testing::SomeStats;
using ada::testing::TempFolder;

namespace {

std::string LastLine(const std::string& text) {
  const std::size_t end = text.size() - 1;
  return text.substr(text.rfind('\n', end - 1) + 1, end - text.rfind('\n', end - 1) - 1);
}

}  // namespace

TEST_SUITE("cpu") {
  TEST_CASE("columns are the documented ones") {
    const TempFolder folder;
    { RunLogs logs(folder.path(), {}); }
    CHECK(folder.Read("steps.csv") ==
          "step,epoch,loss,accuracy,lr,scale,overflow,skipped,grad_norm\n");
    CHECK(folder.Read("scales.csv") ==
          "step,epoch,layer,policy,scale_in,unbound,bound,pow2,alpha,scale_out,limit\n");
    CHECK(folder.Read("underflow.csv") ==
          "step,epoch,layer,tensor,format,scale,numel,zeros_before,zeros_after,underflow,"
          "underflow_pct_nonzero,underflow_pct_numel,below_min_pct,subnormal,overflow,inf,nan,"
          "min_abs,max_abs,mean,std,l1,l2,range_log2,mse,sqnr_db,zero_denominators\n");
    CHECK(folder.Read("events.csv") == "step,epoch,event,layer,tensor,value,message\n");
    CHECK(folder.Read("evaluation.csv") == "step,epoch,split,images,loss,top1,top5\n");
    CHECK(folder.Read("timing.csv") ==
          "step,seconds,images_per_second,data,forward,backward,update,log,tokens\n");
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
    CHECK(LastLine(folder.Read("steps.csv")) == "3,1,2.30258509,0.1015625,0.1,65536.0,1,1,inf");
    CHECK(LastLine(folder.Read("events.csv")) == "3,1,skip,conv1,dw,inf,\"first, of 2\"");
    CHECK(LastLine(folder.Read("evaluation.csv")) == "3,1,validation,5000,1.25,0.5,0.9375");
    CHECK(LastLine(folder.Read("timing.csv")) == "3,1.5,300.0,0.1,0.2,0.3,0.4,0.5,");
  }

  TEST_CASE("rows of scales.csv") {
    struct Case {
      ScaleDecision decision;
      const char* row;
    };
    const double u = 56.418937210;
    const std::vector<Case> cases = {
        {{8, u, 16, 16, 16, 128, Limit::kScaleBound}, "8.0,56.4189372,16.0,16.0,16.0,128.0,SB"},
        {{0.1f, u, u, 32, 32, 3.2f, Limit::kTarget},
         "0.10000000149011612,56.4189372,56.4189372,32.0,32.0,3.200000047683716,target"},
        {{128, NAN, NAN, NAN, 1, 128, Limit::kNone}, "128.0,,,,1.0,128.0,none"},
        {{128, 3, NAN, 2, 2, 256, Limit::kFixed}, "128.0,3.0,,2.0,2.0,256.0,fixed"},
        {{64, NAN, NAN, NAN, 1, 64, Limit::kNonfinite}, "64.0,,,,1.0,64.0,nonfinite"},
        {{64, 1, 1, 1, 0.5f, 32, Limit::kBranch}, "64.0,,,,,32.0,branch"},
        {{1024, 1, 1, 1, 1, 1024, Limit::kOne}, "1024.0,1.0,1.0,1.0,1.0,1024.0,one"},
        {{1024, 2, 1, 1, 1, 1024, Limit::kAccumBound}, "1024.0,2.0,1.0,1.0,1.0,1024.0,AB"},
        {{1, 0.25, 0.25, 0.25, 0.25f, 0.25f, Limit::kCap}, "1.0,0.25,0.25,0.25,0.25,0.25,cap"},
        {{1, 4, 4, 4, 4, 4, Limit::kStale}, "1.0,4.0,4.0,4.0,4.0,4.0,stale"},
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
         "16.0,1000,200,240,40,5.0,4.0,23.0,100,3,1,2,5.96046448e-08,64.0,0.5,0.25,10.0,100.0,30.0,"
         ","},
        {SomeStats(), 1,
         "1.0,1000,200,240,40,5.0,4.0,23.0,100,3,1,2,9.53674316e-07,1024.0,8.0,4.0,160.0,1600.0,30."
         "0,,"},
        // A scale that has become no number: the smallest value is none either, but there is one.
        {SomeStats(), NAN,
         "nan,1000,200,240,40,5.0,4.0,23.0,100,3,1,2,nan,nan,nan,nan,nan,nan,30.0,,"},
        {zeros, 16, "16.0,10,10,10,0,,0.0,100.0,0,0,0,0,,0.0,0.0,0.0,0.0,0.0,,,"},
        {infinite, 1,
         "1.0,1000,200,240,40,5.0,4.0,23.0,100,3,1,2,9.53674316e-07,inf,nan,nan,nan,nan,inf,,"},
        {large, 0x1p-20,
         "9.5367431640625e-07,1000,200,240,40,5.0,4.0,23.0,100,3,1,2,1.0,1.07374182e+09,8388608.0,"
         "4194304.0,167772160.0,1.048576e+66,30.0,,"},
    };
    for (const Case& c : cases) {
      const TempFolder folder;
      {
        RunLogs logs(folder.path(), {});
        logs.Underflow(100, 2, "conv1", "dx", ada::kFp16, c.scale, c.stats);
      }
      CHECK(LastLine(folder.Read("underflow.csv")) ==
            std::string("100,2,conv1,dx,fp16,") + c.row + ",");
    }
    const TempFolder folder;
    RunLogs logs(folder.path(), {});
    CHECK_THROWS_AS(logs.Underflow(1, 1, "conv1", "dx", ada::kFp16, 1, TensorStats()),
                    ada::InternalError);
  }

  TEST_CASE("the error of a probe step in underflow.csv") {
    const std::vector<std::pair<ProbeError, const char*>> cases = {
        {{}, ",,"},
        {{0, INFINITY}, ",0.0,inf"},
        {{1.25e-7, 40.5}, ",1.25e-07,40.5"},
        {{NAN, 3}, ",,3.0"}};
    for (const auto& [error, end] : cases) {
      const TempFolder folder;
      {
        RunLogs logs(folder.path(), {});
        logs.Underflow(100, 2, "conv1", "dx", ada::kFp16, 16, SomeStats(), error);
      }
      CHECK(LastLine(folder.Read("underflow.csv")) ==
            "100,2,conv1,dx,fp16,16.0,1000,200,240,40,5.0,4.0,23.0,100,3,1,2,5.96046448e-08,64.0,"
            "0.5,0.25,10.0,100.0,30.0" +
                std::string(end) + ",");
    }
  }

  TEST_CASE("zero denominators of a state in underflow.csv") {
    for (const std::int64_t pairs : {-1, 0, 12}) {
      const TempFolder folder;
      {
        RunLogs logs(folder.path(), {});
        TensorStats stats = SomeStats();
        stats.zero_denominators = pairs;
        logs.Underflow(100, 2, "fc1", "state.exp_avg_sq", std::string("te_fp8"), 1, stats);
      }
      const std::string line = LastLine(folder.Read("underflow.csv"));
      CHECK(line.starts_with("100,2,fc1,state.exp_avg_sq,te_fp8,"));
      CHECK(line.ends_with(pairs < 0 ? ",,," : ",,," + std::to_string(pairs)));
    }
  }
}
