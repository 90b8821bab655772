// Intervals and what rounding makes of them; see bounds.h.
#include "backend/compare/bounds.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "core/random.h"

namespace ada::backend::compare {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

Interval Around(const Sum& sum, double slack) {
  const double error =
      slack * (8 + 2 * std::sqrt(static_cast<double>(sum.terms))) * 0x1p-24 * sum.magnitude;
  return {sum.value - error, sum.value + error};
}

Interval AroundFp8(const Sum& sum, double slack) {
  const double more = (2 + static_cast<double>(sum.terms) / 32) * 0x1p-13 * sum.magnitude;
  const Interval in = Around(sum, slack);
  return {in.low - more, in.high + more};
}

Interval Times(const Interval& in, double factor) {
  const double a = in.low * factor, b = in.high * factor;
  return {std::min(a, b), std::max(a, b)};
}

Interval Plus(const Interval& in, double more) {
  const double error =
      0x1p-24 * (std::fabs(more) + std::max(std::fabs(in.low), std::fabs(in.high)));
  return {in.low + more - error, in.high + more + error};
}

Ends EndsOf(const Interval& in) {
  const auto low = static_cast<float>(in.low), high = static_cast<float>(in.high);
  if (in.low == in.high && static_cast<double>(low) == in.low) return {low, high};
  return {std::nextafter(low, -kInf), std::nextafter(high, kInf)};
}

Interval RoundedTo(const NumberFormat& format, const Interval& in) {
  const Ends ends = EndsOf(in);
  return {static_cast<double>(RoundTo(format, ends.low)),
          static_cast<double>(RoundTo(format, ends.high))};
}

float Rounder::Round(float x, std::int64_t i) const {
  if (!stochastic) return RoundTo(format, x * scale);
  const auto index = static_cast<std::uint64_t>(i);
  return RoundStochastically(format, x * scale, Philox(key, draw, index / 4)[index % 4]);
}

float Rounder::Store(float x, std::int64_t i) const {
  const float stored = Round(x, i) / scale;
  return relu && stored < 0 ? 0.0f : stored;
}

Range StoredRange(const Rounder& rounder, const Interval& in, std::int64_t i) {
  const Ends ends = EndsOf(in);
  return {rounder.Store(ends.low, i), rounder.Store(ends.high, i)};
}

// A NaN at an end: beyond the largest value of a format without infinity.
bool Range::Holds(float x) const {
  if (std::isnan(x)) return std::isnan(low) || std::isnan(high);
  return (std::isnan(low) || x >= low) && (std::isnan(high) || x <= high);
}

std::string NumberText(double x) {
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", x);
  return text;
}

}  // namespace ada::backend::compare
