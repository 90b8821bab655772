// exact_range: the power of two that follows from the exponents of the last dgrad (the rule is
// explained in rules.h). Only rules_inline.h includes this file.
#pragma once
#include "scaling/rules/methods_inline.h"
#include "scaling/rules/rule_types.h"

namespace ada::scaling {
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

}  // namespace ada::scaling
