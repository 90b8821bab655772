// Joins moments by the formulas of Chan, Golub and LeVeque (1979), which do not cancel where means
// are large.
#include "core/stats_sums.h"

#include <algorithm>
#include <cmath>

namespace ada {

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

}  // namespace ada
