// What is counted at one rounding of one tensor. Plain data, no backend.
#pragma once
#include <cmath>
#include <cstdint>

namespace ada {

// Counts and moments of a tensor of `numel` values as it was rounded to its format. Values before
// rounding carry the scale; telemetry divides by it. zeros_before includes -0.
struct TensorStats {
  std::int64_t numel = 0;
  std::int64_t zeros_before = 0;  // exact zeros before rounding
  std::int64_t zeros_after = 0;   // zeros after rounding
  std::int64_t underflow = 0;     // non-zero before, zero after
  std::int64_t below_min = 0;     // |x| < smallest subnormal, exact zeros included
  std::int64_t subnormal = 0;     // non-zero after rounding and below the smallest normal
  std::int64_t overflow = 0;      // finite before, beyond the format's largest value when rounded
  std::int64_t inf = 0;           // infinite before
  std::int64_t nan = 0;           // NaN before
  float min_abs = 0;              // smallest non-zero finite |x|; 0 where there is none
  float max_abs = 0;              // largest |x| (inf and NaN included, by bit pattern)
  double mean = 0, std = 0;       // population, of the values before rounding
  double l1 = 0, l2 = 0;
  std::int64_t above_edge = 0;  // |rounded x| > Pass::edge times the format's largest value
  bool full = false;            // false: only numel and max_abs hold (a step that is not logged)
};

// Moments of a tensor as stored (after rounding): what a scaling policy looks at.
struct TensorMoments {
  double mean = 0;
  double mean_square = 0;  // E[x^2] = sd^2 + mean^2
  float min = 0, max = 0;  // signed extremes
  float min_abs = 0;       // smallest non-zero |x|; 0 where there is none
};

// NaN where there is no whole.
inline double PercentOf(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : NAN;
}

}  // namespace ada
