// The numbers that ops note of what they write, in the order of their names, which commas part: for
// whoever compares them.
#pragma once
#include <algorithm>
#include <vector>

#include "core/blocks/block_counts.h"
#include "core/stats.h"
#include "scaling/rules/rules.h"

namespace ada::backend {

using Numbers = std::vector<double>;
template <class... T>
Numbers NumbersOf(T... numbers) {
  return {static_cast<double>(numbers)...};
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

// The first two hold where no more is asked for (Gradient::all_moments).
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

// What is decided of a scale, and what follows from the power of two.
inline constexpr char kStages[] = "limit,error,halvings,scale_in,unbound,bound";
inline Numbers StagesOf(const scaling::ScaleDecision& d) {
  return NumbersOf(d.limit, d.error, d.halvings, d.scale_in, d.unbound, d.bound);
}
inline constexpr char kScales[] = "pow2,alpha,scale_out";
inline Numbers ScalesOf(const scaling::ScaleDecision& d) {
  return NumbersOf(d.pow2, d.alpha, d.scale_out);
}

}  // namespace ada::backend
