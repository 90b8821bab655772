// A backend that wraps two: every op runs on both, on the same inputs, and the first op whose
// results differ by more than the tolerances here is reported. The run continues with the first's
// results. It is slow, and layers are not fused across (recomputed batch norms are declined).
//
// How much the results of two backends may differ: the one table of tolerances, with reasons.
//
// Results without sums of unspecified order must be equal: values to the bit (except signs of
// zeros), counts, and operands of matmuls with their blocks, which are made of stored tensors.
//
// An fp32 sum of `length` terms lies before its rounding within `near` of the other side's:
//     near = SumError(length) * (the tensor's largest magnitude + sqrt(length) * rms(x) * rms(w)),
// because partial sums are no larger, even if terms cancel. A stored value may differ by near and
// one spacing of its format, because it may be rounded to either neighbor, as a few are. If both
// sides contain values that are not finite, only finite ones are compared.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "number/number_format.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

namespace compare {

// The first difference in an op's call that exceeds the tolerance.
struct Difference {
  std::int64_t call = 0;  // number of the op's call since the backend was made, from 1
  std::string layer, op;  // "stage1.conv1", "conv2d"
  std::string phase;      // forward, backward, refresh weights, result, update
  std::string tensor;     // y dx dw ...; empty: none
  std::string what;       // "value [n 3, h 0, w 5, c 2]", "underflow", "alpha"
  double first = 0, second = 0;
  std::string allowed;  // "exactly equal", "0.001 apart"
};
// "call 17, layer conv1 (conv2d), backward, dx, underflow: cpu 3, cuda 0 (allowed: exactly equal)".
std::string ToString(const Difference& difference, const std::string& first_name,
                     const std::string& second_name);

}  // namespace compare

struct CompareOptions {
  std::string first_name = "first", second_name = "second";  // "cpu", "cuda"
  // Factor for the error of one side's sums, for hardware that truncates instead of rounding.
  double slack = 1;
  // Called with the first difference of each call of an op; empty: a DeviceError is thrown.
  std::function<void(const compare::Difference&)> report;
  bool fp8_sums = false;  // one side multiplies fp8_e4m3 and fp8_e5m2 with tensor cores for 8 bits
};

// Throws DeviceError if the two divide tensors into different reduction blocks.
std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options = {});

}  // namespace ada::backend

namespace ada::backend::compare {

// Each addition has an error of up to 2^-24 of the partial sum, uniformly distributed: n of them
// have sqrt(n / 3) times that, two sides sqrt(2) times more, and the largest of a million values
// five standard deviations: 5 sqrt(2 / 3) = 4. Another 16 allow for products, bias, alpha, 1 / S.
// `slack`: 1, or 8 for tensor cores, which truncate: n / 8 additions with errors up to 2^-23 add up
// to n / 4 times 2^-24 in one direction, which is 8 * 4 sqrt(n) at n = 16384.
inline double SumError(double length, double slack) {
  return slack * 4 * std::sqrt(length + 16) * 0x1p-24;
}
// Tensor cores for fp8 add to it: on Hopper and Ada they accumulate with 13 fractional bits and
// truncate after every 32 terms (DeepSeek-V3, arXiv 2412.19437, section 3.3.2).
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
inline constexpr double kDecision = 0x1p-14;    // of scales computed from such moments
inline constexpr double kAttention = 0x1p-7;    // of those that depend on p, which may round apart

// The share of values that may be rounded to the other neighbor, if sums have this `error`: the two
// sums are on different sides of a boundary with probability near / spacing. 2 % more, because
// equal values change together; and kFew of a tensor, however small it is.
inline constexpr double kFew = 4;
inline double RoundedShare(double error, const NumberFormat& format) {
  return 0.02 + std::ldexp(error, format.mantissa_bits + 1);
}
// The share of values that may be counted differently: thresholds are an octave apart.
inline double CountedShare(double error) { return 0.02 + 16 * error; }

// How far values of a tensor may lie apart because the order of its sums is unspecified. By default
// there are no such sums, and all values must be equal.
struct SumTolerance {
  double error = 0;  // near = error * (scale + the tensor's largest magnitude)
  double scale = 0;  // multiplied by these alphas once the op has run
  std::vector<const scaling::LayerScaler*> alphas = {};
  bool alpha_first = false;     // alpha is rounded with a term
  double roundings = 1;         // one after another
  double decision = kDecision;  // relative, of alpha
  bool exact() const { return error == 0; }
};

// One spacing of the format around a magnitude; 0 for one that is not finite.
inline double SpacingAt(const NumberFormat& format, double magnitude) {
  if (!std::isfinite(magnitude)) return 0;
  const int exponent = std::ilogb(std::max(magnitude, format.smallest_normal()));
  return std::ldexp(1.0, exponent - format.mantissa_bits);
}

}  // namespace ada::backend::compare

namespace ada::backend {}  // namespace ada::backend
