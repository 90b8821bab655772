// `reference: true`: the authors' pipeline with its fp16 and fp32 stages and its exceptions, as
// read in kumasento/gradient-scaling ada_loss/core.py and chainer_impl/ada_loss_chainer.py and
// confirmed on recordings of it (src/scaling/README.md). Only rules_inline.h includes it.
#pragma once
#include "number/number_grid.h"
#include "scaling/rules/methods_inline.h"
#include "scaling/rules/rule_types.h"

namespace ada::scaling::detail {

// Stores the method's value in `state`. approx_range and lognormal never fail here: a value that is
// not finite becomes NaN, is cached, and fails later. The others fail before anything is stored.
ADA_HOST_DEVICE inline DecisionError UpdateAsReference(const LayerRule& rule,
                                                       const Observation& seen, LayerState& state) {
  const double squares =
      seen.dy.mean_square + (rule.has_weight ? seen.w.mean_square : 0);  // NaN, inf where one is
  Unbound u = {NAN, Limit::kNonfinite};
  if (IsBounded(rule.method)) {
    if (IsFinite(squares)) u = FromMoments(rule, seen);
  } else {
    if (!rule.has_weight) return DecisionError::kNeedsWeight;
    const bool zeros = seen.dy.mean_square == 0 || seen.w.mean_square == 0;
    const bool products = rule.method == LayerMethod::kElementWiseRange;
    if (IsNan(squares) && (products || !zeros)) return DecisionError::kNonfinite;
    if (products && seen.product_max == 0) return DecisionError::kNoProduct;
    u = zeros ? Unscaled() : FromMoments(rule, seen);
    if (!IsFinite(u.value)) return DecisionError::kNonfinite;
  }
  state.unbound = u.value;
  state.unbound_limit = u.limit;
  return DecisionError::kNone;
}

// A minimum that returns NaN if either argument is NaN, as numpy's does.
ADA_HOST_DEVICE inline double LeastOrNan(double a, double b) {
  return IsNan(a) || IsNan(b) ? static_cast<double>(NAN) : Least(a, b);
}

// SB and AB are held in fp16, the result in fp32.
ADA_HOST_DEVICE inline double BoundAsReference(const LayerRule& rule, double u, float scale_in,
                                               Limit& limit) {
  const double accumulated = RoundToHalf(rule.accum_upper_bound) / static_cast<double>(scale_in);
  const double highest = RoundToHalf(rule.scale_upper_bound);
  const double bound = LeastOrNan(accumulated, highest);
  if (bound < u) limit = highest <= accumulated ? Limit::kScaleBound : Limit::kAccumBound;
  return static_cast<float>(LeastOrNan(u, bound));
}

// 2^floor(log2 b) in fp16, with log2 b rounded to fp32 (under `fixed` to fp16) before the floor.
ADA_HOST_DEVICE inline double PowerOfTwoAsReference(double b, bool half) {
  double log = static_cast<float>(std::log2(b));
  if (half) log = RoundToHalf(log);
  return RoundToHalf(std::exp2(std::floor(log)));
}

// Computes alpha and S_out from the unbound value in `out`.
ADA_HOST_DEVICE inline DecisionError StagesAsReference(const LayerRule& rule, ScaleDecision& out) {
  double factor = out.unbound;
  if (IsBounded(rule.method)) {
    if (!IsFinite(factor)) return DecisionError::kNonfinite;
    out.bound = factor = BoundAsReference(rule, factor, out.scale_in, out.limit);
  }
  if (rule.power_of_two) {
    out.pow2 = factor = PowerOfTwoAsReference(factor, rule.method == LayerMethod::kFixed);
  }
  factor = RoundToHalf(factor);
  out.alpha = static_cast<float>(factor);
  double scale_out = factor * RoundToHalf(out.scale_in);
  if (rule.power_of_two && rule.fp16_gradients) scale_out = RoundToHalf(scale_out);
  if (!IsFinite(static_cast<float>(scale_out))) return DecisionError::kAlphaNotFinite;
  out.scale_out = static_cast<float>(scale_out);
  return DecisionError::kNone;
}

// alpha and S_out stay NaN where the original would raise an exception; the trainer then ends the
// run with the error's text.
ADA_HOST_DEVICE inline void DecideAsReference(LayerScaler& scaler, const Observation& seen,
                                              bool update) {
  const LayerRule& rule = scaler.rule;
  ScaleDecision& out = scaler.decision;
  out.alpha = out.scale_out = NAN;
  if (rule.method == LayerMethod::kFixed) {
    out.unbound = RoundToHalf(rule.fixed_scale);
    out.limit = Limit::kFixed;
  } else {
    if (update) out.error = UpdateAsReference(rule, seen, scaler.state);
    out.limit = Limit::kNonfinite;
    if (out.error != DecisionError::kNone) return;  // nothing was produced, and no call counted
    out.unbound = scaler.state.unbound;
    out.limit = update ? scaler.state.unbound_limit : Limit::kStale;
  }
  ++scaler.state.calls;
  out.error = StagesAsReference(rule, out);
}

// The authors' methods; the others are ours.
ADA_HOST_DEVICE inline bool FollowsReference(const LayerRule& rule) {
  return rule.reference && (rule.method == LayerMethod::kFixed || LooksAtMoments(rule.method));
}

}  // namespace ada::scaling::detail
