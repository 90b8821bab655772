// The bodies of rules.h: arithmetic on plain structs, compiled by g++ and nvcc alike (C++17, no
// exceptions, no allocation, no library type). Doubles throughout; only alpha and S are fp32.
#pragma once
#include "scaling/rules.h"

namespace ada::scaling {

// alpha and S_out stay within normal fp32 powers of two: alpha is never 0 and S never 0 or inf,
// however far the statistics go (the reference's fp16 alpha wipes the gradient there).
inline constexpr double kSmallestScale = 1.1754943508222875e-38;  // 2^-126
inline constexpr double kLargestScale = 1.7014118346046923e38;    // 2^127

namespace detail {

ADA_HOST_DEVICE inline double Least(double a, double b) { return b < a ? b : a; }
ADA_HOST_DEVICE inline double Greatest(double a, double b) { return a < b ? b : a; }
ADA_HOST_DEVICE inline bool IsFinite(double x) { return x - x == 0; }
ADA_HOST_DEVICE inline bool AllFinite(const TensorMoments& m) {
  return IsFinite(m.mean) && IsFinite(m.mean_square) && IsFinite(m.min) && IsFinite(m.max);
}

// 2^floor(log2 x) exactly, for x > 0.
ADA_HOST_DEVICE inline double PowerOfTwoBelow(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, exponent - 1);
}

// The largest magnitude of a product of one element of each tensor.
ADA_HOST_DEVICE inline double LargestProduct(const TensorMoments& dy, const TensorMoments& w) {
  const double magnitude_dy = Greatest(std::fabs(dy.min), std::fabs(dy.max));
  return magnitude_dy * Greatest(std::fabs(w.min), std::fabs(w.max));
}

// approx_range with a weight: u and the rule that decided it, into `state`.
ADA_HOST_DEVICE inline void ApproxRange(const LayerRule& rule, const TensorMoments& dy,
                                        const TensorMoments& w, LayerState& state) {
  const double sigma = std::sqrt(dy.mean_square * w.mean_square) * std::sqrt(0.5 * rule.fan);
  state.unbound = 1;
  state.unbound_limit = Limit::kOne;
  if (sigma == 0) return;  // before the cap: there is nothing that could overflow
  const double want = rule.u_min / (rule.t * sigma);
  if (want > 1) {
    state.unbound = want;
    state.unbound_limit = Limit::kTarget;
  }
  const double cap = (rule.u_max / rule.fan) / LargestProduct(dy, w);
  if (cap < state.unbound) {
    state.unbound = cap;
    state.unbound_limit = Limit::kCap;
  }
}

// alpha = factor, kept where alpha and S_in * alpha lie within kSmallestScale..kLargestScale; a
// power of two stays one.
ADA_HOST_DEVICE inline float ClampAlpha(double factor, double scale_in, bool power_of_two) {
  double low = Greatest(kSmallestScale, kSmallestScale / scale_in);
  double high = Least(kLargestScale, kLargestScale / scale_in);
  if (power_of_two) {
    const double below = PowerOfTwoBelow(low);
    low = below < low ? 2 * below : below;
    high = PowerOfTwoBelow(high);
  }
  return static_cast<float>(Greatest(low, Least(factor, high)));
}

}  // namespace detail

ADA_HOST_DEVICE inline bool NeedsMoments(const LayerScaler& scaler) {
  return scaler.rule.method == LayerMethod::kApproxRange &&
         scaler.state.calls % scaler.rule.update_interval == 0;
}

// Moments are read only where NeedsMoments says so. Where dy, w or S_in is not finite (or S_in not
// positive): alpha 1, limit kNonfinite, stages empty, state as it was, so that the next pass
// decides.
ADA_HOST_DEVICE inline void Decide(LayerScaler& scaler, const TensorMoments& dy,
                                   const TensorMoments& w, float scale_in) {
  const LayerRule& rule = scaler.rule;
  ScaleDecision& out = scaler.decision;
  out = ScaleDecision{};
  out.scale_in = out.scale_out = scale_in;
  if (rule.method == LayerMethod::kPass) return;
  const bool update = NeedsMoments(scaler);
  if (!detail::IsFinite(scale_in) || !(scale_in > 0) ||
      (update && !(detail::AllFinite(dy) && detail::AllFinite(w)))) {
    out.limit = Limit::kNonfinite;
    return;
  }

  double factor = rule.fixed_scale;
  out.limit = Limit::kFixed;
  if (rule.method == LayerMethod::kApproxRange) {
    if (update) detail::ApproxRange(rule, dy, w, scaler.state);
    factor = scaler.state.unbound;
    out.limit = update ? scaler.state.unbound_limit : Limit::kStale;
  }
  out.unbound = factor;

  if (rule.method == LayerMethod::kApproxRange) {
    const double accumulated = rule.accum_upper_bound / scale_in;
    if (accumulated < factor) {
      factor = accumulated;
      out.limit = Limit::kAccumBound;
    }
    if (rule.scale_upper_bound < factor) {
      factor = rule.scale_upper_bound;
      out.limit = Limit::kScaleBound;
    }
    out.bound = factor;
  }

  if (rule.power_of_two) out.pow2 = factor = detail::PowerOfTwoBelow(factor);
  out.alpha = detail::ClampAlpha(factor, scale_in, rule.power_of_two);
  out.scale_out = scale_in * out.alpha;
  ++scaler.state.calls;
}

// `largest` not finite (the step is skipped anyway): the smallest scale. Never below 2^-126.
ADA_HOST_DEVICE inline float BranchTarget(const float* scales, int count, double largest,
                                          double u_max) {
  float smallest = scales[0];
  float fitting = 0;
  for (int i = 0; i < count; ++i) {
    if (scales[i] < smallest) smallest = scales[i];
    if (scales[i] > fitting && largest * scales[i] < u_max) fitting = scales[i];
  }
  if (!detail::IsFinite(largest)) return smallest;
  if (fitting > 0) return fitting;
  float target = smallest;
  while (target >= 0.125f && !(largest * target < u_max)) target /= 2;
  if (largest * target < u_max) return target;
  double power = detail::PowerOfTwoBelow(u_max / largest);
  if (!(largest * power < u_max)) power /= 2;  // u_max / largest is itself a power of two
  return static_cast<float>(detail::Greatest(power, kSmallestScale));
}

}  // namespace ada::scaling
