// See foresight.h.
#include "what_if/foresight.h"

#include <algorithm>
#include <cmath>

namespace ada::what_if {
namespace {

using scaling::ExponentTail;
using scaling::LayerMethod;

// The bins as a backward pass would have counted them with a scale of 2^floor(log2 scale_in).
ExponentTail TailOf(const ExponentBins& dx, float scale_in) {
  constexpr int kBias = 127;  // of fp32's exponent field
  const int shift = std::ilogb(scale_in);
  ExponentTail tail;
  tail.scale_in = std::ldexp(1.0f, shift);
  tail.limit = ExponentTail::kBins;
  tail.nonzero = dx.nonzero();
  for (int e = ExponentBins::kLowest; e <= ExponentBins::kHighest; ++e)
    if (dx[e] > 0) tail.bins[std::clamp(e + shift + kBias, 0, ExponentTail::kBins - 2)] += dx[e];
  const int top = TopExponent(dx);
  if (tail.nonzero > 0) tail.largest = std::ldexp(1.0, top + 1 + shift);
  return tail;
}

}  // namespace

float ScaleWithForesight(scaling::LayerRule rule, const NumberFormat& format,
                         const ExponentBins& dx, float scale_in) {
  const LayerMethod method = rule.method;
  if (rule.u_min == 0) rule.u_min = format.smallest_subnormal();
  if (rule.u_max == 0) rule.u_max = format.largest();
  scaling::LayerScaler scaler;
  if (method != LayerMethod::kFixed) {
    rule.method = LayerMethod::kExactRange;
    scaler.state.tail = TailOf(dx, scale_in);
    scaler.state.tail_is_new = true;
  }
  scaler.rule = rule;
  scaling::Decide(scaler, {}, scale_in);
  const bool bounded = method == LayerMethod::kApproxRange || method == LayerMethod::kLognormal;
  const double accumulated = rule.accum_upper_bound / static_cast<double>(scale_in);
  const double bound = std::min(accumulated, rule.scale_upper_bound);
  if (!bounded || static_cast<double>(scaler.decision.alpha) <= bound)
    return scaler.decision.scale_out;
  const double alpha = rule.power_of_two ? std::ldexp(1.0, std::ilogb(bound)) : bound;
  return static_cast<float>(static_cast<double>(scale_in) * alpha);
}

}  // namespace ada::what_if
