// The definitions for rules.h: arithmetic on plain structs, compiled by g++ and nvcc (C++17, no
// exceptions, no allocation, no library types). All values are doubles; only alpha and S are fp32.
#pragma once
#include "number/number_grid.h"
#include "scaling/rules/methods_inline.h"
#include "scaling/rules/reference_inline.h"
#include "scaling/rules/rule_types.h"
#include "scaling/rules/rules.h"

namespace ada::scaling {

// --- Scales of sums of branches ---

// `largest` is a quotient by a scale, rounded in double: where it is that of u_max itself, their
// product may lie just below u_max, and does not fit.
ADA_HOST_DEVICE inline bool BranchesFit(float target, double largest, double u_max) {
  return largest * static_cast<double>(target) * (1 + 0x1p-50) < u_max;
}

// `largest` not finite (the step is skipped anyway): the smallest scale, which is also returned
// where it is not finite and no other fits. Never below 2^-126.
ADA_HOST_DEVICE inline float BranchTarget(const float* scales, int count, double largest,
                                          double u_max) {
  float smallest = scales[0];
  float fitting = 0;
  for (int i = 0; i < count; ++i) {
    if (scales[i] < smallest) smallest = scales[i];
    if (scales[i] > fitting && BranchesFit(scales[i], largest, u_max)) fitting = scales[i];
  }
  if (!detail::IsFinite(largest)) return smallest;
  if (fitting > 0) return fitting;
  if (!detail::IsFinite(smallest)) return smallest;
  // No branch's scale fits: halving the smallest one, at most down to 1/16, keeps the values' order
  // of magnitude; below that a power of two is computed directly.
  float target = smallest;
  while (target >= 0.125f && !BranchesFit(target, largest, u_max)) target /= 2;
  if (BranchesFit(target, largest, u_max)) return target;
  double power = detail::PowerOfTwoBelow(u_max / largest);
  if (!(largest * power < u_max)) power /= 2;  // u_max / largest is itself a power of two
  return static_cast<float>(detail::Greatest(power, kSmallestScale));
}

ADA_HOST_DEVICE inline bool BranchSumOverflows(float target, double sum_max, double u_max) {
  return sum_max >= u_max && !(target < kSmallestBranchTarget);
}

// Products of fp32 values are rounded to fp32; once the scale was halved it is a double in the
// original, and so is the product. Comparisons are written as there, so that NaN is treated alike;
// where all scales are infinite the original never ends, and the scale is returned, or NaN.
ADA_HOST_DEVICE inline float BranchTargetReference(const float* scales, int count, float largest,
                                                   float u_max) {
  float smallest = scales[0], fitting = 0;
  bool fits = false;
  for (int i = 0; i < count; ++i) {
    if (scales[i] < smallest) smallest = scales[i];
    if (static_cast<float>(largest * scales[i]) < u_max && (!fits || scales[i] > fitting)) {
      fitting = scales[i];
      fits = true;
    }
  }
  if (fits) return fitting;
  double target = smallest;
  bool halved = false;
  while (target >= 0.125 && detail::IsFinite(target) && !(halved && target * largest < u_max)) {
    target /= 2;
    halved = true;
  }
  const double product =
      halved ? target * largest : static_cast<double>(static_cast<float>(smallest * largest));
  return product >= u_max ? NAN : static_cast<float>(target);
}

ADA_HOST_DEVICE inline float BranchLargestReference(const float* magnitudes, const float* scales,
                                                    int count) {
  float largest = magnitudes[0] / scales[0];
  for (int i = 1; i < count; ++i) {
    const float unscaled = magnitudes[i] / scales[i];
    if (unscaled > largest) largest = unscaled;
  }
  return largest;
}

ADA_HOST_DEVICE inline float BranchFactorReference(float target, float scale, bool fp16) {
  const float factor = target / scale;
  return fp16 ? static_cast<float>(RoundToHalf(factor)) : factor;
}

// --- exact_range, by the exponents of the last dgrad ---

namespace detail {

// The first bin that is kept when magnitudes are multiplied by `factor`: a bin is lost if its lower
// end, 2^(bin - 127), times `factor` is below u_min / 2. Bin 0 holds fp32's subnormals, from 2^-149
// on.
ADA_HOST_DEVICE inline std::int32_t FirstKept(const LayerRule& rule, double factor) {
  const double edge = 0.5 * rule.u_min / factor;
  if (edge == 0) return 0;  // every value lies above it
  int exponent = 0;
  const double mantissa = std::frexp(edge, &exponent);
  const int bin = exponent + (mantissa > 0.5 ? 127 : 126);
  if (bin < 1) return edge > 1.401298464324817e-45 ? 1 : 0;
  return bin < ExponentTail::kBins - 1 ? bin : ExponentTail::kBins - 1;
}

// want: the smallest 2^k that meets the target.
ADA_HOST_DEVICE inline double SmallestPower(const LayerRule& rule, const ExponentTail& tail,
                                            double ratio) {
  const double allowed = rule.underflow_target * static_cast<double>(tail.nonzero);
  double power = 1;
  std::int32_t kept = FirstKept(rule, ratio);
  std::int64_t lost = 0;
  for (std::int32_t bin = 0; bin < kept; ++bin) lost += tail.bins[bin];
  while (kept > 0 && static_cast<double>(lost) > allowed) {
    power *= 2;
    const std::int32_t next = FirstKept(rule, ratio * power);
    while (kept > next) lost -= tail.bins[--kept];
  }
  return power;
}

// hi: the largest power of two that keeps the headroom; all zero: inf.
ADA_HOST_DEVICE inline double LargestPower(const LayerRule& rule, double largest) {
  if (largest == 0) return HUGE_VAL;
  const double room = rule.u_max * std::exp2(-rule.headroom_bits);
  double power = PowerOfTwoBelow(room / largest);
  if (largest * power > room) power /= 2;  // the quotient was rounded up to a power of two
  return power;
}

ADA_HOST_DEVICE inline Unbound ExactRange(const LayerRule& rule, const ExponentTail& tail,
                                          float scale_in) {
  const double ratio = static_cast<double>(scale_in) / tail.scale_in;
  const double want = SmallestPower(rule, tail, ratio);
  const double high = LargestPower(rule, tail.largest * ratio);
  if (high < want) return {high, Limit::kCap};
  return {want, want > 1 ? Limit::kTarget : Limit::kOne};
}

}  // namespace detail

// `calls` includes the current pass already, because Decide was called before.
ADA_HOST_DEVICE inline bool WantsTail(const LayerScaler& scaler) {
  const LayerState& state = scaler.state;
  if (scaler.rule.method != LayerMethod::kExactRange) return false;
  if (scaler.decision.limit == Limit::kNonfinite) return false;
  return state.tail.scale_in == 0 || (state.calls - 1) % scaler.rule.update_interval == 0;
}

ADA_HOST_DEVICE inline void FinishTail(LayerScaler& scaler, std::int64_t nonzero, double largest) {
  ExponentTail& tail = scaler.state.tail;
  tail.nonzero = nonzero, tail.largest = largest;
  tail.scale_in = scaler.decision.scale_in;
  scaler.state.tail_is_new = true;
}

ADA_HOST_DEVICE inline void ObserveTail(LayerScaler& scaler, const ExponentTail& tail) {
  if (!detail::IsFinite(tail.largest)) return;
  for (int bin = 0; bin < ExponentTail::kBins; ++bin) scaler.state.tail.bins[bin] = tail.bins[bin];
  FinishTail(scaler, tail.nonzero, tail.largest);
}

// --- Decisions ---

namespace detail {

// Returns `factor` limited so that alpha and S_in * alpha are within kSmallestScale..kLargestScale;
// a power of two stays one.
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

ADA_HOST_DEVICE inline bool IsScale(float scale) { return IsFinite(scale) && scale > 0; }

// Whether this call computes a new unbound value.
ADA_HOST_DEVICE inline bool IsUpdate(const LayerScaler& scaler) {
  if (scaler.rule.method == LayerMethod::kExactRange) {
    const bool every = scaler.rule.update_interval == 1 && scaler.state.tail.scale_in > 0;
    return every || scaler.state.tail_is_new;
  }
  return LooksAtMoments(scaler.rule.method) &&
         scaler.state.calls % scaler.rule.update_interval == 0;
}

// Whether the statistics that an update would read are usable.
ADA_HOST_DEVICE inline bool IsReadable(const LayerRule& rule, const Observation& seen) {
  if (!LooksAtMoments(rule.method)) return true;
  if (!AllFinite(seen.dy) || (rule.has_weight && !AllFinite(seen.w))) return false;
  if (rule.method == LayerMethod::kElementWiseRange && rule.has_weight) {
    return IsFinite(seen.product_min) && IsFinite(seen.product_max);
  }
  const bool logs = rule.method == LayerMethod::kLognormal && !rule.has_weight;
  return !logs || (IsFinite(seen.log_mean) && IsFinite(seen.log_std));
}

// Puts the unbound value of this call and its cause into `out` (and, if new, into the state).
ADA_HOST_DEVICE inline void TakeUnbound(LayerScaler& scaler, const Observation& seen, bool update) {
  const LayerRule& rule = scaler.rule;
  ScaleDecision& out = scaler.decision;
  if (rule.method == LayerMethod::kFixed) {
    out.unbound = rule.fixed_scale;
    out.limit = Limit::kFixed;
    return;
  }
  LayerState& state = scaler.state;
  if (update) {
    const Unbound u = rule.method == LayerMethod::kExactRange
                          ? ExactRange(rule, state.tail, out.scale_in)
                          : FromMoments(rule, seen);
    state.unbound = u.value;
    state.unbound_limit = u.limit;
    state.tail_is_new = false;
  }
  // Before the first tail there is nothing to update from, and no old value either.
  const bool first = rule.method == LayerMethod::kExactRange && state.tail.scale_in == 0;
  out.unbound = state.unbound;
  out.limit = update || first ? state.unbound_limit : Limit::kStale;
}

// Applies SB and AB / S_in; if both are equal, the limit is named SB.
ADA_HOST_DEVICE inline double Bounded(const LayerRule& rule, double factor, ScaleDecision& out) {
  const double accumulated = rule.accum_upper_bound / static_cast<double>(out.scale_in);
  const double bound = Least(accumulated, rule.scale_upper_bound);
  if (!(bound < factor)) return factor;
  out.limit = rule.scale_upper_bound <= accumulated ? Limit::kScaleBound : Limit::kAccumBound;
  return bound;
}

// kState: S_out is the layer's scale.
ADA_HOST_DEVICE inline void TakeStateScale(float state_scale, ScaleDecision& out) {
  out.limit = Limit::kState;
  out.unbound = static_cast<double>(state_scale) / out.scale_in;
  out.alpha = ClampAlpha(out.unbound, out.scale_in, false);
  const bool clamped = out.alpha != static_cast<float>(out.unbound);
  out.scale_out = clamped ? out.scale_in * out.alpha : state_scale;
}

}  // namespace detail

ADA_HOST_DEVICE inline Needs NeedsOf(const LayerScaler& scaler) {
  const LayerRule& rule = scaler.rule;
  Needs needs;
  needs.moments = detail::LooksAtMoments(rule.method) && detail::IsUpdate(scaler);
  needs.logs = needs.moments && rule.method == LayerMethod::kLognormal && !rule.has_weight;
  needs.products =
      needs.moments && rule.method == LayerMethod::kElementWiseRange && rule.has_weight;
  return needs;
}

ADA_HOST_DEVICE inline bool MayNeedMoments(const LayerRule& rule) {
  return detail::LooksAtMoments(rule.method);
}
ADA_HOST_DEVICE inline bool MayNeedAllMoments(const LayerRule& rule) {
  const bool size_will_do = rule.method == LayerMethod::kApproxRange && rule.has_weight;
  return MayNeedMoments(rule) && !size_will_do;
}

// Three cases return before the stages: no scale at all, the authors' program, unusable statistics.
// A pass with unusable statistics is not counted as a call, so that update_interval counts usable
// passes.
ADA_HOST_DEVICE inline void Decide(LayerScaler& scaler, const Observation& seen, float scale_in) {
  const LayerRule& rule = scaler.rule;
  ScaleDecision& out = scaler.decision;
  out = ScaleDecision{};
  out.scale_in = out.scale_out = scale_in;
  if (rule.method == LayerMethod::kPass) return;
  const bool update = detail::IsUpdate(scaler);
  if (detail::FollowsReference(rule)) return detail::DecideAsReference(scaler, seen, update);
  const bool state_machine = rule.method == LayerMethod::kState;
  if (!detail::IsScale(scale_in) || (update && !detail::IsReadable(rule, seen)) ||
      (state_machine && !detail::IsScale(scaler.state.state_scale))) {
    out.limit = Limit::kNonfinite;
    return;
  }
  ++scaler.state.calls;
  if (state_machine) return detail::TakeStateScale(scaler.state.state_scale, out);

  detail::TakeUnbound(scaler, seen, update);
  double factor = out.unbound;
  if (detail::IsBounded(rule.method)) out.bound = factor = detail::Bounded(rule, factor, out);
  if (rule.power_of_two) out.pow2 = factor = detail::PowerOfTwoBelow(factor);
  const bool power = rule.power_of_two || rule.method == LayerMethod::kExactRange;
  out.alpha = detail::ClampAlpha(factor, scale_in, power);
  out.scale_out = scale_in * out.alpha;
}

}  // namespace ada::scaling
