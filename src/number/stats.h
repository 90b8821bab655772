// What is counted at one rounding of one tensor: counts, moments, and how magnitudes are spread.
// Plain data, no backend.
#pragma once
#include <array>
#include <cmath>
#include <cstdint>

#include "number/number_format.h"

namespace ada {

// By magnitudes alone. Between the two numbers of an end a value is lost under one of its two signs
// (toward_positive, toward_negative); else they are the same. Formats that draw count as rounded to
// nearest, those without a sign as if all values were positive.
struct LostEnds {
  double zero_below, kept_from;  // zero_below itself is lost where it is half the smallest value
  double some_leave_from, leave_from;  // inf: none leaves
};
LostEnds LostEndsOf(const NumberFormat& format);

// `asked`, rounded by the modes that `own` has (number/table_grid.h), where it has any.
NumberFormat RoundedLike(const NumberFormat& asked, const NumberFormat& own);

// Counts and moments of a tensor of `numel` values as it was rounded to its format. Values before
// rounding carry S, which telemetry divides out. A scale of the tensor's own decides what rounding
// does to them (below_min, underflow, subnormal, overflow, above_edge); zeros, inf, NaN, extremes
// and moments are of the values without it. zeros_before includes -0.
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
  // States of an update: values whose denominator is kept as zero and whose numerator is not, so
  // that the next step is numerator / epsilon; below 0: not counted.
  std::int64_t zero_denominators = -1;
  bool full = false;  // false: only numel and max_abs are valid (step without counts)
};

// Moments of a tensor as stored (after rounding), the input of scaling policies.
struct TensorMoments {
  double mean = 0;
  double mean_square = 0;  // E[x^2] = sd^2 + mean^2
  float min = 0, max = 0;  // signed extremes
  float min_abs = 0;       // smallest non-zero |x|; 0 where there is none
};

// NaN if `whole` is 0.
inline double PercentOf(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : NAN;
}

// The counts of both, as if one tensor had held all values, which carry one scale.
TensorStats CombinedStats(const TensorStats& a, const TensorStats& b);
// Magnitudes and moments as if the values had carried `factor` more. left: the largest magnitude
// left its format when it was rounded; it stays as it was, so that it is still known as one.
TensorStats Rescaled(TensorStats stats, double factor, bool left);

// How the magnitudes of a tensor are distributed over binary exponents, from which follows what any
// format at any scale would lose of them: counts of values by floor(log2 |x|), for x without its
// scale and before rounding. The range covers every fp32 value under every fp32 scale.
struct ExponentBins {
  static constexpr int kLowest = -280, kHighest = 280;
  std::array<std::int64_t, kHighest - kLowest + 1> counts{};
  std::int64_t zeros = 0, inf = 0, nan = 0;

  // `exponent` lies in kLowest..kHighest; it is not checked.
  std::int64_t& operator[](int exponent) {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
  std::int64_t operator[](int exponent) const {
    return counts[static_cast<std::size_t>(exponent - kLowest)];
  }
  void Add(const ExponentBins& other);
  std::int64_t nonzero() const;  // finite values that are not zero
  std::int64_t numel() const;    // all values
  friend bool operator==(const ExponentBins&, const ExponentBins&) = default;
};

// What rounding to nearest would lose of a tensor that carries some scale. Each threshold is
// inside one exponent's bin; `unsure` counts all values of these bins. Outside of them counts are
// exact; a bin is split at its threshold as if its values were spread evenly (none of them
// underflows if the threshold is the bin's lower end, a power of two: only values equal to it
// would).
struct WouldLose {
  std::int64_t nonzero = 0;  // finite values that are not zero
  double underflow = 0, overflow = 0;
  std::int64_t underflow_unsure = 0, overflow_unsure = 0;
  double underflow_pct() const;  // of nonzero; NaN where there are none
};
// `scale` is positive and finite.
WouldLose WouldLoseOf(const ExponentBins& bins, const NumberFormat& format, double scale);

}  // namespace ada
