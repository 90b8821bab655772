// How far the results of two backends may lie apart: the one table of tolerances, and why.
//
// What holds no sum of free order is equal: values to the bit (but for signs of zeros), counts,
// and operands of products with their blocks, for they are made of stored tensors, which are equal.
//
// An fp32 sum of `length` terms lies before its rounding within `near` of the other side's:
//     near = SumError(length) * (the tensor's largest magnitude + sqrt(length) * rms(x) * rms(w)),
// for partial sums are no larger, also where terms cancel. A value that is stored lies within near
// and one spacing of its format, for it may be rounded to either neighbor; few values are. Where
// both sides hold values that are not finite, finite ones are compared alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/number_format.h"
#include "scaling/rules/rules.h"

namespace ada::backend::compare {

// Each addition is off by up to 2^-24 of the partial sum, evenly distributed: after n of them by
// sqrt(n / 3) times that, two sides by sqrt(2) times that, the largest of a million values by five
// deviations: 5 sqrt(2 / 3) = 4. Another 16 stand for products, the bias, alpha, 1 / S. `slack`: 1,
// or 8 for a GPU's units, which cut off: n / 8 additions of up to 2^-23 are off by n / 4 times
// 2^-24 to one side, which is 8 * 4 sqrt(n) at n = 16384.
inline double SumError(double length, double slack) {
  return slack * 4 * std::sqrt(length + 16) * 0x1p-24;
}
// Units for fp8 add to it: Hopper and Ada keep 13 bits after the point where they add up, and cut
// off at every step of 32 terms (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
inline double Fp8SumError(double length) { return (2 + length / 32) * 0x1p-13; }
// Attention's probabilities: e^x in fp32 and a quotient, and scores of magnitudes up to 16.
inline double ProbabilityError(double width, double slack) {
  return 0x1p-19 + 2 * 16 * SumError(width, slack);
}

// Relative errors:
inline constexpr double kLoss = 0x1p-22;        // of a loss's gradient, rounded to fp32 before S
inline constexpr double kUpdate = 0x1p-21;      // of Adam and clipping: 8 roundings, a root
inline constexpr double kDoubleSums = 1e-9;     // of sums in double, of up to a billion values
inline constexpr double kDeviation = 1e-6;      // of a deviation, by differences of such sums
inline constexpr double kLogarithms = 1e-10;    // absolute, a block: decibels, exponents
inline constexpr double kMomentSums = 0x1p-15;  // of moments, which a CPU sums up in fp32 in part
inline constexpr double kDecision = 0x1p-14;    // of scales that rest on such moments
inline constexpr double kAttention = 0x1p-7;    // on those of p, whose values may round otherwise

// The share of values that may be rounded to the other neighbor, where sums are off by `error`: a
// boundary parts two of them with the probability near / spacing. 2 % more, as equal values fall to
// one side together; kFew of a tensor, however small it is.
inline constexpr double kFew = 4;
inline double RoundedShare(double error, const NumberFormat& format) {
  return 0.02 + std::ldexp(error, format.mantissa_bits + 1);
}
// The share of those that are counted otherwise: boundaries lie an octave apart.
inline double CountedShare(double error) { return 0.02 + 16 * error; }

// The sums of a tensor whose order is free; at its defaults there are none, and all is equal.
struct Sums {
  double error = 0;  // near = error * (scale + the tensor's largest magnitude)
  double scale = 0;  // times these alphas, once the op has run
  std::vector<const scaling::LayerScaler*> alphas = {};
  bool alpha_first = false;     // alpha is rounded with a term
  double roundings = 1;         // one after the other
  double decision = kDecision;  // relative, of alpha
  bool exact() const { return error == 0; }
};

// One spacing of the format around a magnitude.
inline double SpacingAt(const NumberFormat& format, double magnitude) {
  const int exponent = std::ilogb(std::max(magnitude, format.smallest_normal()));
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

}  // namespace ada::backend::compare
