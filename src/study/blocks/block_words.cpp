// NaN means that there was nothing to measure, and infinity that nothing was lost.
#include "study/blocks/block_words.h"

#include <cmath>

#include "core/text.h"

namespace ada::study {

std::string DecibelText(double db) {
  if (std::isnan(db)) return "-";
  return std::isinf(db) ? "exact" : Formatted("%.1f", db);
}

std::string Log2Text(double log2) { return std::isnan(log2) ? "-" : Formatted("%.1f", log2); }

bool LosesMore(const telemetry::BlockFigures& a, const telemetry::BlockFigures& b) {
  const auto lost = [](const telemetry::BlockFigures& figures) {
    // Comparing NaN would break the order of a sort.
    return std::isnan(figures.lost_pct_nonzero) ? -1 : figures.lost_pct_nonzero;
  };
  return lost(a) > lost(b);
}

std::string ScalesText(const telemetry::BlockFigures& figures) {
  if (std::isnan(figures.scale_log2_min)) return "-";
  return Formatted("%.0f", figures.scale_log2_min) + ".." +
         Formatted("%.0f", figures.scale_log2_max);
}

}  // namespace ada::study
