// Counts what rounding to a plain format does to the values of a tensor.
#pragma once
#include <cmath>

#include "number/number_format.h"
#include "number/stats.h"
#include "scaling/rules/tensor_scale.h"
#include "telemetry/block_figures.h"

namespace ada::judge {

// Take for each value, then GoTo once.
class PlainCounts {
 public:
  explicit PlainCounts(const NumberFormat& format)
      : format_(format), overflow_from_(OverflowThreshold(format)) {}
  std::int64_t numel = 0, zeros = 0, inf = 0, nan = 0, lost = 0, saturated = 0;
  double signal = 0, noise = 0;  // sums over finite values
  bool multiplies_back = false;  // as scaling::MultipliesBack

  void Take(const scaling::RowScale& scale, float x) {
    const float scaled = x * scale.encode, rounded = RoundTo(format_, scaled);
    const bool finite = std::isfinite(x);
    ++numel;
    zeros += x == 0, inf += std::isinf(x), nan += std::isnan(x);
    lost += finite && x != 0 && rounded == 0;
    saturated += finite && std::fabs(scaled) >= overflow_from_;
    if (!finite) return;
    const auto exact = static_cast<double>(x), element = static_cast<double>(rounded);
    const double back = multiplies_back ? element * static_cast<double>(scale.decode)
                                        : element / static_cast<double>(scale.encode);
    signal += exact * exact, noise += (exact - back) * (exact - back);
  }

  // The figures of blocks and of causes stay as they are.
  void GoTo(telemetry::BlockFigures& figures) const {
    figures.numel = numel, figures.zeros = zeros, figures.inf = inf, figures.nan = nan;
    figures.lost = lost, figures.saturated = saturated;
    figures.lost_pct_nonzero = PercentOf(lost, numel - zeros);
    if (signal > 0) figures.sqnr_db = 10 * std::log10(signal / noise);
  }

 private:
  NumberFormat format_;
  float overflow_from_;
};

}  // namespace ada::judge
