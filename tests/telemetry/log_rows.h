// Counts and rows for the tests of RunLogs, and those of the files that not every run has.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "telemetry/run_logs.h"

namespace ada::testing {

inline const std::vector<std::string> kOptional = {"histograms.csv", "what_if.csv", "probes.csv"};
inline const telemetry::LogChoice kEverything = {
    .histograms = true, .what_if = true, .probes = true};

inline TensorStats SomeStats() {
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

inline ExponentBins SomeBins(std::int64_t step) {
  ExponentBins bins;
  bins[-24] = step;
  bins[3] = 7;
  bins.zeros = 9;
  return bins;
}

// One row (a histogram: five) of each of the optional files.
inline void WriteOptional(telemetry::RunLogs& logs, std::int64_t step) {
  logs.Histogram(step, 1, "conv1", "dx", 128, SomeBins(step));
  logs.WhatIf({step, 1, "conv1", "dx", "scale 8, fp16", "fp16", 8, 1.5, 0, 0.25, 2});
  logs.Probe({step, 1, "conv1", "dx", "fp16", 128, 1000, 800, 200, 1e-9, 30, 0.999});
}

}  // namespace ada::testing
