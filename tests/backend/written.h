// What ops wrote, as a list of numbers to compare: values, counts, moments, histograms.
#pragma once
#include <cmath>
#include <vector>

#include "backend/values.h"
#include "number/stats.h"

namespace ada::backend::test {

// Zeros are without their sign, NaN are one.
struct Written {
  std::vector<double> numbers;
  void Add(double x) { numbers.push_back(std::isnan(x) ? -12345.678 : x + 0.0); }
  void Add(const TensorStats& s) {
    for (const std::int64_t count :
         {s.numel, s.zeros_before, s.zeros_after, s.underflow, s.below_min, s.subnormal, s.overflow,
          s.inf, s.nan, s.above_edge})
      Add(static_cast<double>(count));
    for (const double x : {static_cast<double>(s.min_abs), static_cast<double>(s.max_abs), s.mean,
                           s.std, s.l1, s.l2})
      Add(x);
  }
  void Add(const TensorMoments& m, bool extremes) {
    Add(m.mean), Add(m.mean_square);
    if (!extremes) return;  // not defined if there is a NaN
    Add(static_cast<double>(m.min)), Add(static_cast<double>(m.max));
    Add(static_cast<double>(m.min_abs));
  }
  void Add(const Values& values) {
    for (const float v : values) Add(static_cast<double>(v));
  }
  void Add(const ExponentBins& bins) {
    for (const std::int64_t n : bins.counts) Add(static_cast<double>(n));
    Add(static_cast<double>(bins.zeros)), Add(static_cast<double>(bins.inf));
    Add(static_cast<double>(bins.nan));
  }
};

}  // namespace ada::backend::test
