// The statistical methods, from moments and extremes to the scale before bounds. Only
// rules_inline.h includes this file. All values are doubles; with LayerRule::reference each is
// rounded to fp32 where the authors' program stores it as fp32.
#pragma once
#include "scaling/rules/rule_types.h"

namespace ada::scaling {

// alpha and S_out are kept within fp32's normal powers of two: alpha is never 0 and S never 0 or
// inf, however extreme the statistics (the reference's fp16 alpha can zero the gradient).
inline constexpr double kSmallestScale = 1.1754943508222875e-38;  // 2^-126
inline constexpr double kLargestScale = 1.7014118346046923e38;    // 2^127

namespace detail {

ADA_HOST_DEVICE inline double Least(double a, double b) { return b < a ? b : a; }
ADA_HOST_DEVICE inline double Greatest(double a, double b) { return a < b ? b : a; }
ADA_HOST_DEVICE inline bool IsFinite(double x) { return x - x == 0; }
ADA_HOST_DEVICE inline bool IsNan(double x) { return !(x == x); }
ADA_HOST_DEVICE inline bool AllFinite(const TensorMoments& m) {
  return IsFinite(m.mean) && IsFinite(m.mean_square) && IsFinite(m.min) && IsFinite(m.max);
}

// 2^floor(log2 x) exactly, for x > 0.
ADA_HOST_DEVICE inline double PowerOfTwoBelow(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent - 1);
}

// x as the reference stores it, in fp32; for our rules x itself.
ADA_HOST_DEVICE inline double Held(const LayerRule& rule, double x) {
  return rule.reference ? static_cast<double>(static_cast<float>(x)) : x;
}

// max |x|; inf where a value is infinite.
ADA_HOST_DEVICE inline double LargestMagnitude(const TensorMoments& m) {
  if (!IsFinite(m.mean_square)) return HUGE_VAL;
  return Greatest(std::fabs(m.min), std::fabs(m.max));
}

// Standard deviation of the population; exactly 0 for a constant tensor.
ADA_HOST_DEVICE inline double Deviation(const TensorMoments& m) {
  if (m.min == m.max) return 0;
  return std::sqrt(Greatest(m.mean_square - m.mean * m.mean, 0));
}

// A method's value before bounds and rounding to a power of two, and what determined it.
struct Unbound {
  double value;
  Limit limit;
};
ADA_HOST_DEVICE inline Unbound Unscaled() { return {1, Limit::kOne}; }

// min(max(want, 1), cap) and which of the three it is.
ADA_HOST_DEVICE inline Unbound Between(const LayerRule& rule, double want, double cap) {
  Unbound u = want > 1 ? Unbound{want, Limit::kTarget} : Unscaled();
  if (cap < u.value) u = {cap, Limit::kCap};
  u.value = Held(rule, u.value);
  return u;
}

// Gaussian model. With deviation 0: 1, even if the cap is smaller, as nothing can overflow.
ADA_HOST_DEVICE inline Unbound ApproxRange(const LayerRule& rule, const Observation& seen) {
  const double largest = LargestMagnitude(seen.dy), u_min = Held(rule, rule.u_min);
  if (!rule.has_weight) {
    const double sigma = Held(rule, Deviation(seen.dy));
    if (sigma == 0) return Unscaled();
    return Between(rule, u_min / (rule.t * sigma), Held(rule, rule.u_max / largest));
  }
  const double product = Held(rule, std::sqrt(seen.dy.mean_square * seen.w.mean_square));
  const double sigma = product * std::sqrt(0.5 * rule.fan);
  if (sigma == 0) return Unscaled();
  const double product_max = Held(rule, largest * LargestMagnitude(seen.w));
  return Between(rule, u_min / (rule.t * sigma), (rule.u_max / rule.fan) / product_max);
}

// Log-normal model of a cast's gradient. 1 if all values are zero or have one magnitude.
ADA_HOST_DEVICE inline Unbound LogNormal(const LayerRule& rule, const Observation& seen) {
  if (rule.has_weight) return ApproxRange(rule, seen);
  const double largest = LargestMagnitude(seen.dy);
  const double mu = Held(rule, seen.log_mean), sd = Held(rule, seen.log_std);
  if (largest == 0 || largest == seen.dy.min_abs || sd == 0) return Unscaled();
  const double u_min = Held(rule, std::log(Held(rule, rule.u_min)));
  const double want = std::exp(Held(rule, u_min - mu) - sd * rule.phi_inverse);
  return Between(rule, want, Held(rule, rule.u_max / largest));
}

// From the extremes of |dy| and |w|; a cast: w = 1. The floor of 1e-15 is the authors'.
ADA_HOST_DEVICE inline Unbound AbsRange(const LayerRule& rule, const Observation& seen) {
  const double w_min = rule.has_weight ? seen.w.min_abs : 1;
  const double w_max = rule.has_weight ? LargestMagnitude(seen.w) : 1;
  if (seen.dy.mean_square == 0 || w_max == 0) return Unscaled();
  const double smallest = Held(rule, seen.dy.min_abs * w_min);
  const double largest = Held(rule, LargestMagnitude(seen.dy) * w_max);
  return Between(rule, (Held(rule, rule.u_min) / rule.fan) / Greatest(smallest, 1e-15),
                 (rule.u_max / rule.fan) / largest);
}

// From the extremes of the products; a cast: those of |dy|.
ADA_HOST_DEVICE inline Unbound ElementWiseRange(const LayerRule& rule, const Observation& seen) {
  const double smallest = Held(rule, rule.has_weight ? seen.product_min : seen.dy.min_abs);
  const double largest = Held(rule, rule.has_weight ? seen.product_max : LargestMagnitude(seen.dy));
  if (largest == 0 && !rule.reference) return Unscaled();
  return Between(rule, Held(rule, Held(rule, rule.u_min) / smallest),
                 Held(rule, Held(rule, rule.u_max / largest) / rule.fan));
}

// Methods that use statistics of dy and w, and those of them to which SB and AB apply.
ADA_HOST_DEVICE inline bool IsBounded(LayerMethod method) {
  return method == LayerMethod::kApproxRange || method == LayerMethod::kLognormal;
}
ADA_HOST_DEVICE inline bool LooksAtMoments(LayerMethod method) {
  return IsBounded(method) || method == LayerMethod::kAbsRange ||
         method == LayerMethod::kElementWiseRange;
}

ADA_HOST_DEVICE inline Unbound FromMoments(const LayerRule& rule, const Observation& seen) {
  switch (rule.method) {
    case LayerMethod::kLognormal:
      return LogNormal(rule, seen);
    case LayerMethod::kAbsRange:
      return AbsRange(rule, seen);
    case LayerMethod::kElementWiseRange:
      return ElementWiseRange(rule, seen);
    default:
      return ApproxRange(rule, seen);
  }
}

}  // namespace detail
}  // namespace ada::scaling
