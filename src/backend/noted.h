// The numbers that ops record about what they write, in the order of their names, which are
// separated by commas: for comparing them.
#pragma once
#include <algorithm>
#include <vector>

#include "backend/op.h"
#include "backend/update.h"
#include "number/blocks/block_counts.h"
#include "number/stats.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

template <class T>
double Wide(T x) {
  return static_cast<double>(x);
}
using Numbers = std::vector<double>;
template <class... T>
Numbers NumbersOf(T... numbers) {
  return {Wide(numbers)...};
}

inline constexpr char kCounts[] =
    "zeros_before,zeros_after,underflow,below_min,subnormal,overflow,inf,nan,above_edge";
inline Numbers CountsOf(const TensorStats& s) {
  return NumbersOf(s.zeros_before, s.zeros_after, s.underflow, s.below_min, s.subnormal, s.overflow,
                   s.inf, s.nan, s.above_edge);
}
inline constexpr char kTotals[] = "min_abs,mean,l1,l2,std";
inline Numbers TotalsOf(const TensorStats& s) {
  return NumbersOf(s.min_abs, s.mean, s.l1, s.l2, s.std);
}

// The first two are always valid, the others only with Gradient::all_moments.
inline constexpr char kMoments[] =
    "mean square,largest magnitude,smallest,largest,smallest magnitude,mean";
inline Numbers MomentsOf(const TensorMoments& m) {
  return NumbersOf(m.mean_square, std::max(-m.min, m.max), m.min, m.max, m.min_abs, m.mean);
}

inline constexpr char kBlockCounts[] =
    "blocks,zero_blocks,broken_blocks,scaled_blocks,noisy_blocks,values,zeros,inf,nan,"
    "lost_beside_largest,lost_tensor_scale,lost_scale_floor,lost_scale_rounding,saturated,at_floor,"
    "at_ceiling";
inline Numbers CountsOf(const BlockCounts& c) {
  return NumbersOf(c.blocks, c.zero_blocks, c.broken_blocks, c.scaled_blocks, c.noisy_blocks,
                   c.numel, c.zeros, c.inf, c.nan, c.lost_beside_largest, c.lost_tensor_scale,
                   c.lost_scale_floor, c.lost_scale_rounding, c.saturated, c.at_floor,
                   c.at_ceiling);
}
inline constexpr char kBlockTotals[] =
    "log2_min,log2_max,log2_sum,log2_square_sum,sqnr_sum,sqnr_worst,signal,noise";
inline Numbers TotalsOf(const BlockCounts& c) {
  return NumbersOf(c.log2_min, c.log2_max, c.log2_sum, c.log2_square_sum, c.sqnr_sum, c.sqnr_worst,
                   c.signal, c.noise);
}

inline constexpr char kResult[] = "loss,locations,top1,top5";
inline Numbers ResultOf(const LossResult& r) {
  return NumbersOf(r.loss_sum, r.location_sum, r.top1, r.top5);
}
inline constexpr char kOutcome[] = "overflow,largest,watched,updated,clipped,norm";
inline Numbers OutcomeOf(const UpdateOutcome& o) {
  return NumbersOf(o.overflow, o.largest, o.watched, o.updated, o.clipped, o.norm);
}

// What is decided of a scale, and what follows from the power of two.
inline constexpr char kStages[] = "limit,error,halvings,scale_in,unbound,bound";
inline Numbers StagesOf(const scaling::ScaleDecision& d) {
  return NumbersOf(d.limit, d.error, d.halvings, d.scale_in, d.unbound, d.bound);
}
inline constexpr char kScales[] = "pow2,alpha,scale_out";
inline Numbers ScalesOf(const scaling::ScaleDecision& d) {
  return NumbersOf(d.pow2, d.alpha, d.scale_out);
}

inline constexpr char kState[] = "calls,unbound,tail's largest";
inline Numbers StateOf(const scaling::LayerState& s) {
  return NumbersOf(s.calls, s.unbound, s.tail.largest);
}

// How values are spread over exponents; with those that have none.
inline Numbers BinsOf(const ExponentBins& bins) {
  Numbers all(bins.counts.begin(), bins.counts.end());
  for (const std::int64_t n : {bins.zeros, bins.inf, bins.nan}) all.push_back(Wide(n));
  return all;
}
inline Numbers BinsOf(const scaling::ExponentTail& tail) {
  Numbers all(tail.bins, tail.bins + tail.kBins);
  all.push_back(Wide(tail.nonzero));
  return all;
}

}  // namespace ada::backend
