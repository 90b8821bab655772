// How many values may be counted either way; see reference_bounds.h.
#include "backend/compare/reference_bounds.h"

#include <algorithm>
#include <limits>
#include <vector>

namespace ada::backend::compare {
namespace {

// What TensorStats counts of one value before rounding.
struct Classes {
  bool zero_before, zero_after, underflow, below_min, subnormal, overflow, above_edge;
};
Classes Classify(const Rounder& r, float x, std::int64_t i, double edge) {
  const double before = std::fabs(static_cast<double>(x * r.scale)),
               after = std::fabs(static_cast<double>(r.Round(x, i)));
  Classes c{};
  c.zero_before = before == 0, c.zero_after = after == 0;
  c.underflow = before > 0 && after == 0;
  c.below_min = before < r.format.smallest_subnormal();
  c.subnormal = after > 0 && after < r.format.smallest_normal();
  c.overflow = std::isfinite(before) && before >= static_cast<double>(OverflowThreshold(r.format));
  c.above_edge = after > edge * r.format.largest();
  return c;
}

// Adds what is not the same at all of these points.
void Count(const std::vector<Classes>& points, Budget& budget) {
  const auto differ = [&](bool Classes::*field) {
    return std::any_of(points.begin(), points.end(),
                       [&](const Classes& c) { return c.*field != points[0].*field; })
               ? 1
               : 0;
  };
  budget.zeros_before += differ(&Classes::zero_before);
  budget.zeros_after += differ(&Classes::zero_after);
  budget.underflow += differ(&Classes::underflow);
  budget.below_min += differ(&Classes::below_min);
  budget.subnormal += differ(&Classes::subnormal);
  budget.overflow += differ(&Classes::overflow);
  budget.above_edge += differ(&Classes::above_edge);
}

// The ends, and what lies between them where zero, tiny or subnormal values do.
std::vector<Classes> PointsOf(const Rounder& r, const Ends& ends, std::int64_t i, double edge) {
  const float tiny = std::numeric_limits<float>::min() / std::min(r.scale, 1.0f);
  const auto smallest = static_cast<float>(r.format.smallest_subnormal()) / r.scale;
  std::vector<Classes> points;
  for (const float x : {ends.low, ends.high, 0.0f, -tiny, tiny, -smallest, smallest})
    if (x >= ends.low && x <= ends.high) points.push_back(Classify(r, x, i, edge));
  return points;
}

// Whether all of it lies in one binary exponent of x / s.
bool OneExponent(double low, double high, double s) {
  if (low <= 0 && high >= 0) return low == 0 && high == 0;
  return std::ilogb(low / s * (1 - 0x1p-50)) == std::ilogb(low / s * (1 + 0x1p-50)) &&
         std::ilogb(low / s) == std::ilogb(high / s);
}

}  // namespace

Output OutputOf(const std::string& name, const Tensor& tensor, const RoundingStyle& style,
                TensorStats* stats) {
  Output out;
  out.name = name, out.tensor = tensor, out.format = tensor.format;
  out.style = style, out.stats = stats;
  return out;
}
Output OutputOf(const std::string& name, const Gradient& gradient) {
  Output out = OutputOf(name, gradient.tensor, gradient.style, gradient.stats);
  out.moments = gradient.moments, out.all_moments = gradient.all_moments;
  out.scale = gradient.scale;
  return out;
}
Output ParameterOf(const std::string& name, const Tensor& tensor) {
  Output out = OutputOf(name, tensor);
  out.parameter = true;
  return out;
}

Budget BudgetOf(const ReferenceBounds* bounds, const Rounder& rounder, std::int64_t values,
                double edge, double s) {
  Budget budget;
  for (std::int64_t i = 0; bounds != nullptr && i < values; ++i) {
    const Interval in = bounds->Before(i);
    if (!in.finite()) {
      ++budget.unknown;
      continue;
    }
    const Ends ends = EndsOf(in);
    const auto low = static_cast<double>(ends.low), high = static_cast<double>(ends.high);
    if (low == high) continue;
    const double width = (high - low) * static_cast<double>(rounder.scale);
    budget.sum += width, budget.sum_square += width * width;
    budget.largest = std::max(budget.largest, width);
    budget.bins += OneExponent(low, high, s) ? 0 : 1;
    Count(PointsOf(rounder, ends, i, edge), budget);
  }
  return budget;
}

}  // namespace ada::backend::compare
