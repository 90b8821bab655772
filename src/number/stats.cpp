// Sums of counts, and what a format would lose of a histogram. Where a format's two thresholds fall
// among the bins comes from mantissas and exponents of exact numbers, never from a logarithm that
// could round.
#include "number/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "error.h"
#include "number/table_grid.h"

namespace ada {

LostEnds LostEndsOf(const NumberFormat& format) {
  const double smallest = format.smallest_subnormal();
  const auto leaves = static_cast<double>(OverflowThreshold(format));
  // A value that lies halfway between zero and the smallest number becomes the even of them, zero.
  LostEnds ends{smallest / 2, smallest / 2, leaves, leaves};
  if (format.table == 0) return ends;
  const TableGrid& grid = TableGridAt(format.table);
  switch (grid.modes.rounding) {
    case TableRounding::kTowardZero:
      ends.zero_below = ends.kept_from = smallest;
      break;
    case TableRounding::kTowardOdd:  // zero is even
      ends.zero_below = ends.kept_from = 0;
      break;
    case TableRounding::kTowardPositive:
    case TableRounding::kTowardNegative:
      ends.zero_below = 0, ends.kept_from = smallest;
      ends.leave_from = grid.next;
      break;
    default:
      break;
  }
  return ends;
}

NumberFormat RoundedLike(const NumberFormat& asked, const NumberFormat& own) {
  if (own.table == 0) return asked;
  const TableModes& modes = TableGridAt(own.table).modes;
  return modes == TableModes() ? asked : WithModes(asked, modes);
}

// Joins moments by the formulas of Chan, Golub and LeVeque (1979), which do not cancel where means
// are large.
TensorStats CombinedStats(const TensorStats& a, const TensorStats& b) {
  TensorStats s = a;
  s.numel += b.numel;
  s.zeros_before += b.zeros_before;
  s.zeros_after += b.zeros_after;
  s.underflow += b.underflow;
  s.below_min += b.below_min;
  s.subnormal += b.subnormal;
  s.overflow += b.overflow;
  s.inf += b.inf;
  s.nan += b.nan;
  s.above_edge += b.above_edge;
  if (b.zero_denominators >= 0)
    s.zero_denominators = std::max<std::int64_t>(s.zero_denominators, 0) + b.zero_denominators;
  s.min_abs = a.min_abs == 0   ? b.min_abs
              : b.min_abs == 0 ? a.min_abs
                               : std::min(a.min_abs, b.min_abs);
  // NaN of either side stays, as it counts as largest.
  s.max_abs = std::isnan(a.max_abs) || a.max_abs > b.max_abs ? a.max_abs : b.max_abs;
  const auto na = static_cast<double>(a.numel), nb = static_cast<double>(b.numel);
  if (na + nb > 0) {
    const double d = b.mean - a.mean;
    s.mean = (a.mean * na + b.mean * nb) / (na + nb);
    s.std = std::sqrt((a.std * a.std * na + b.std * b.std * nb + d * d * na * nb / (na + nb)) /
                      (na + nb));
  }
  s.l1 = a.l1 + b.l1;
  s.l2 = std::sqrt(a.l2 * a.l2 + b.l2 * b.l2);
  return s;
}

TensorStats Rescaled(TensorStats stats, double factor, bool left) {
  if (factor == 1 || !std::isfinite(factor)) return stats;
  const auto times = [factor](float x) {
    return static_cast<float>(static_cast<double>(x) * factor);
  };
  if (!left) stats.max_abs = times(stats.max_abs);
  stats.min_abs = times(stats.min_abs);
  stats.mean *= factor, stats.std *= factor, stats.l1 *= factor, stats.l2 *= factor;
  return stats;
}

namespace {

// A threshold of |x|: 2^exponent * place, 1 <= place < 2.
struct Threshold {
  int exponent;
  double place;
  // The share of the values of a bin that lie below it, as if they were spread evenly.
  double ShareBelow(int bin) const { return bin < exponent ? 1 : bin > exponent ? 0 : place - 1; }
};
// The threshold of x, where x * scale has the threshold `at`.
Threshold Unscaled(double at, double scale) {
  if (at == 0) return {ExponentBins::kLowest - 1, 1};
  int at_exponent = 0, scale_exponent = 0;
  const double a = std::frexp(at, &at_exponent), s = std::frexp(scale, &scale_exponent);
  const bool borrow = a < s;
  return {at_exponent - scale_exponent - (borrow ? 1 : 0), (borrow ? 2 * a : a) / s};
}

// From here on a product with the scale overflows: what is rounded to the format is an fp32, so
// fp32's own end counts for formats that reach beyond it.
double WithinFp32(double threshold) { return std::min(threshold, 0x1.ffffffp127); }

}  // namespace

void ExponentBins::Add(const ExponentBins& other) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  zeros += other.zeros, inf += other.inf, nan += other.nan;
}

std::int64_t ExponentBins::nonzero() const {
  std::int64_t sum = 0;
  for (const std::int64_t count : counts) sum += count;
  return sum;
}

std::int64_t ExponentBins::numel() const { return nonzero() + zeros + inf + nan; }

double WouldLose::underflow_pct() const {
  if (nonzero == 0) return std::numeric_limits<double>::quiet_NaN();
  return 100 * underflow / static_cast<double>(nonzero);
}

WouldLose WouldLoseOf(const ExponentBins& bins, const NumberFormat& format, double scale) {
  ADA_CHECK(scale > 0 && std::isfinite(scale));
  const LostEnds ends = LostEndsOf(format);
  const Threshold zero = Unscaled(ends.zero_below, scale), kept = Unscaled(ends.kept_from, scale);
  const Threshold some = Unscaled(WithinFp32(ends.some_leave_from), scale);
  const Threshold all = Unscaled(WithinFp32(ends.leave_from), scale);
  WouldLose lose;
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e) {
    const auto count = static_cast<double>(bins[e]);
    lose.nonzero += bins[e];
    if (format.is_signed) {  // scales' formats have no zero
      lose.underflow += count * (zero.ShareBelow(e) + kept.ShareBelow(e)) / 2;
      if (e >= zero.exponent && e <= kept.exponent) lose.underflow_unsure += bins[e];
    }
    lose.overflow += count * (2 - some.ShareBelow(e) - all.ShareBelow(e)) / 2;
    if (e >= some.exponent && e <= all.exponent) lose.overflow_unsure += bins[e];
  }
  return lose;
}

}  // namespace ada
