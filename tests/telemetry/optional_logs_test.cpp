// The files that not every run has: rows by hand, when they are there, and what a resume does.
#include <doctest/doctest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "error.h"
#include "log_rows.h"
#include "temp_folder.h"

using ada::ExponentBins;
using ada::telemetry::LogChoice;
using ada::telemetry::ProbeRow;
using ada::telemetry::RunLogs;
using ada::telemetry::WhatIfRow;
using ada::testing::kEverything;
using ada::testing::kOptional;
using ada::testing::TempFolder;
using ada::testing::WriteOptional;

TEST_SUITE("cpu") {
  TEST_CASE("rows of histograms.csv: what has no exponent, then exponents that occur") {
    const TempFolder folder;
    {
      RunLogs logs(folder.path(), {}, {.histograms = true});
      ExponentBins bins;
      bins[ExponentBins::kHighest] = 1;
      bins[-1] = 20;
      bins[ExponentBins::kLowest] = 5'000'000'000;
      logs.Histogram(3, 1, "a, b", "dy", 0.1, bins);
      bins = {};
      bins.zeros = 4;
      bins.inf = 2;
      bins.nan = 1;
      logs.Histogram(4, 1, "fc", "w", 1, bins);
      logs.Histogram(5, 1, "fc", "w", 1, {});
      bins = {};
      bins[0] = 6;
      bins.nan = 3;
      logs.Histogram(6, 2, "fc", "w", 1, bins);
    }
    CHECK(folder.Read("histograms.csv") ==
          "step,epoch,layer,tensor,scale,exponent,count\n"
          "3,1,\"a, b\",dy,0.1,zero,0\n"
          "3,1,\"a, b\",dy,0.1,inf,0\n"
          "3,1,\"a, b\",dy,0.1,nan,0\n"
          "3,1,\"a, b\",dy,0.1,-280,5000000000\n"
          "3,1,\"a, b\",dy,0.1,-1,20\n"
          "3,1,\"a, b\",dy,0.1,280,1\n"
          "4,1,fc,w,1.0,zero,4\n"
          "4,1,fc,w,1.0,inf,2\n"
          "4,1,fc,w,1.0,nan,1\n"
          "5,1,fc,w,1.0,zero,0\n"
          "5,1,fc,w,1.0,inf,0\n"
          "5,1,fc,w,1.0,nan,0\n"
          "6,2,fc,w,1.0,zero,0\n"
          "6,2,fc,w,1.0,inf,0\n"
          "6,2,fc,w,1.0,nan,3\n"
          "6,2,fc,w,1.0,0,6\n");
  }

  TEST_CASE("rows of what_if.csv and probes.csv") {
    const TempFolder folder;
    {
      RunLogs logs(folder.path(), {}, kEverything);
      logs.WhatIf({3, 1, "fc", "dx", "dynamic", "fp8_e4m3", 65536, 1.0 / 3, 12.5, 0.125, 40});
      logs.WhatIf({4, 1, "fc", "dx", "dynamic", "fp16", 1, NAN, 0, NAN, 0});  // all values zero
      logs.Probe({3, 1, "fc", "dw", "fp32", 1, 1000, 800, 200, 1e-9, 30.25, 0.875, NAN, 1.5});
      logs.Probe({4, 1, "fc", "dx", "fp16", 0.1, 10, 10, 0, 0, INFINITY, 1});
      logs.Probe({5, 1, "fc", "dx", "fp16", 1, 10, 0, 0, NAN, NAN, NAN});
    }
    CHECK(folder.Read("what_if.csv") ==
          "step,epoch,layer,tensor,scenario,format,scale,underflow_pct_nonzero,overflow,"
          "underflow_unsure_pct,overflow_unsure\n"
          "3,1,fc,dx,dynamic,fp8_e4m3,65536.0,0.333333333,12.5,0.125,40\n"
          "4,1,fc,dx,dynamic,fp16,1.0,,0.0,,0\n");
    CHECK(folder.Read("probes.csv") ==
          "step,epoch,layer,tensor,format,scale,numel,nonzero,lost,lost_pct,mse,sqnr_db,cosine,"
          "norm_over_noise\n"
          "3,1,fc,dw,fp32,1.0,1000,800,200,25.0,1e-09,30.25,0.875,1.5\n"
          "4,1,fc,dx,fp16,0.1,10,10,0,0.0,0.0,inf,1.0,\n"
          "5,1,fc,dx,fp16,1.0,10,0,0,,,,,\n");
  }

  TEST_CASE("optional files: there where they are asked for") {
    const std::vector<LogChoice> choices = {
        {}, {.histograms = true}, {.what_if = true}, {.probes = true}, kEverything};
    for (const LogChoice& choice : choices) {
      const TempFolder folder;
      for (const std::string& name : kOptional) folder.Write(name, "of an earlier run");
      RunLogs logs(folder.path(), {}, choice);
      const auto lengths = logs.Sync();
      const bool wanted[] = {choice.histograms, choice.what_if, choice.probes};
      for (std::size_t i = 0; i < kOptional.size(); ++i) {
        CAPTURE(kOptional[i]);
        CHECK(folder.Has(kOptional[i]) == wanted[i]);
        CHECK(lengths.count(kOptional[i]) == (wanted[i] ? 1 : 0));
        if (wanted[i]) CHECK(folder.Read(kOptional[i]).starts_with("step,epoch,layer,tensor,"));
      }
      if (!choice.histograms) {
        CHECK_THROWS_AS(logs.Histogram(1, 1, "a", "dx", 1, {}), ada::InternalError);
      }
      if (!choice.what_if) CHECK_THROWS_AS(logs.WhatIf(WhatIfRow()), ada::InternalError);
      if (!choice.probes) CHECK_THROWS_AS(logs.Probe(ProbeRow()), ada::InternalError);
    }
  }

  TEST_CASE("optional files after a resume: cut, fresh or gone, as the checkpoint says") {
    const TempFolder folder, whole;
    std::map<std::string, std::int64_t> without, with;
    {
      RunLogs logs(folder.path(), {});
      without = logs.Sync();
    }
    {
      RunLogs logs(folder.path(), without, kEverything);  // asked for, but unknown: fresh
      for (int step = 1; step <= 25; ++step) WriteOptional(logs, step);
      with = logs.Sync();
      for (int step = 26; step <= 40; ++step) WriteOptional(logs, step);
    }
    for (const std::string& name : kOptional) CHECK(with.count(name) == 1);
    { RunLogs logs(folder.path(), with); }  // known, but no longer asked for: kept and cut
    for (const std::string& name : kOptional) {
      CHECK(static_cast<std::int64_t>(folder.Read(name).size()) == with.at(name));
    }
    {
      RunLogs logs(folder.path(), with, kEverything);
      for (int step = 26; step <= 60; ++step) WriteOptional(logs, step);
    }
    {
      RunLogs logs(whole.path(), {}, kEverything);
      for (int step = 1; step <= 60; ++step) WriteOptional(logs, step);
    }
    for (const std::string& name : kOptional) CHECK((folder.Read(name) == whole.Read(name)));
    { RunLogs logs(folder.path(), without); }  // neither
    for (const std::string& name : kOptional) CHECK_FALSE(folder.Has(name));
    with["probes.csv"] = 1 << 20;
    CHECK_THROWS_AS(RunLogs(folder.path(), with, kEverything), ada::DataError);
  }
}
