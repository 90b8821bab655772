// How far two backends may lie apart. Both compute what the contract says, in fp32 sums of another
// order: such a sum of `terms` products lies within
//     slack * (8 + 2 sqrt(terms)) * 2^-24 * (sum of the products' magnitudes)
// of the sum without error (errors of single additions add up like a random walk; slack is 1 for
// sums that round to nearest, more for a unit that truncates). Units for operands of 8 bits keep
// fewer: their sums may be off by another
//     (2 + terms / 32) * 2^-13 * (sum of the products' magnitudes),
// for Hopper and Ada keep 13 bits after the point where they add up fp8 (DeepSeek-V3, arXiv
// 2412.19437, section 3.3.2: "around 14 bits", nearly 2 % at 4096 terms) and cut off what is left
// at every step of 32 terms. What is stored then is the rounding of some value in that interval:
// one value of the format, or the two beside a rounding boundary that lies in it. What holds no
// such sum is equal, bit for bit but for NaN's and zero's signs.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>

#include "backend/backend.h"

namespace ada::backend::compare {

inline double Wide(float x) { return static_cast<double>(x); }

// Where a value before rounding may lie.
struct Interval {
  double low = 0, high = 0;
  double width() const { return high - low; }
  bool finite() const { return std::isfinite(low) && std::isfinite(high); }
};

// A sum and what bounds its error.
struct Sum {
  double value = 0, magnitude = 0;
  std::int64_t terms = 0;
  void Add(double term) { value += term, magnitude += std::fabs(term), ++terms; }
};
Interval Around(const Sum& sum, double slack);
Interval AroundFp8(const Sum& sum, double slack);  // of a unit for operands of 8 bits
// Both ends times `factor` (of either sign), or plus `more` and one fp32 rounding.
Interval Times(const Interval& in, double factor);
Interval Plus(const Interval& in, double more);
// What rounding to nearest makes of the interval.
Interval RoundedTo(const NumberFormat& format, const Interval& in);

// Relative errors of sums in double over values in another order, and of the moments of stored
// values, which a CPU adds up in fp32 in part.
inline constexpr double kDoubleSums = 1e-9, kMomentSums = 0x1p-15, kDeviation = 1e-6;
// Bounds a scale's stages, which come from such moments.
inline constexpr double kDecision = 0x1p-14;

// How one tensor's values are rounded in one pass.
struct Rounder {
  NumberFormat format;
  bool stochastic = false;
  std::uint64_t key = 0, draw = 0;
  float scale = 1;    // the tensor's own
  bool relu = false;  // zero where negative, after rounding

  Rounder(const NumberFormat& to, const RoundingStyle& style, float per_tensor_scale,
          const Pass& pass)
      : format(to),
        stochastic(style.stochastic),
        key(pass.seed ^ style.stream),
        draw(pass.draw),
        scale(per_tensor_scale) {}
  // Value `i` of the tensor, times `scale`, rounded; what is counted.
  float Round(float x, std::int64_t i) const;
  // The same as it is stored.
  float Store(float x, std::int64_t i) const;
};

// The fp32 values just outside an interval, or its ends where it is one fp32 value.
struct Ends {
  float low, high;
};
Ends EndsOf(const Interval& in);
// Whether `x` is what Store makes of some value of the interval.
struct Range {
  float low, high;
  bool Holds(float x) const;
};
Range StoredRange(const Rounder& rounder, const Interval& in, std::int64_t i);

// Equal numbers, zeros of either sign, or two NaN.
inline bool Same(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }
// Within `bound`; what is not finite must be the same.
inline bool Near(double a, double b, double bound) {
  return Same(a, b) || std::fabs(a - b) <= bound;
}
std::string NumberText(double x);  // nine significant digits

}  // namespace ada::backend::compare
