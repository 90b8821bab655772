// The definitions for rules.h: arithmetic on plain structs, compiled by g++ and nvcc (C++17, no
// exceptions, no allocation, no library types). All values are doubles; only alpha and S are fp32.
#pragma once
#include "scaling/rules/branch_inline.h"
#include "scaling/rules/exact_range_inline.h"
#include "scaling/rules/methods_inline.h"
#include "scaling/rules/reference_inline.h"
#include "scaling/rules/rules.h"

namespace ada::scaling {

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
