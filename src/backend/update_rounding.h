// The update of one weight whose master or state is stored in fewer bits than fp32, and what is
// counted of updates: plain inline functions that every backend's kernels call. Terms are computed
// in fp32 from what is stored; the new weight and each state are rounded once, when they are
// stored. `static`: kernels compiled for several instruction sets must each have their own copy.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "backend/stats_rules.h"
#include "backend/update_rules.h"
#include "number/number_grid.h"
#include "number/random.h"

namespace ada::backend {

// Whether an update is more than the plain fp32 rule.
inline bool KeepsFewerBits(const UpdateRule& rule) {
  return rule.masters.format != kFp32 || rule.state.format != kFp32 || rule.states != nullptr;
}

// How the values of one update are kept; `seed` and `draw` of its stochastic rounding.
struct UpdateRounding {
  NumberGrid masters, state;
  bool stochastic_masters = false, stochastic_state = false;
  bool in_format = false;  // each operation is rounded to `masters`
  std::uint64_t seed = 0, draw = 0;
};
static inline UpdateRounding MakeUpdateRounding(const UpdateRule& rule, const UpdateStep& step) {
  UpdateRounding rounding;
  rounding.masters = GridOf(rule.masters.format), rounding.state = GridOf(rule.state.format);
  rounding.stochastic_masters = rule.masters.stochastic;
  rounding.stochastic_state = rule.state.stochastic;
  rounding.in_format = rule.arithmetic != UpdateRule::Arithmetic::kFp32;
  rounding.seed = step.seed, rounding.draw = static_cast<std::uint64_t>(step.count);
  return rounding;
}

// Value i of a parameter with `stream`; part 0: its master, 1 and 2: its states.
ADA_HOST_DEVICE static inline float RoundToStorage(const NumberGrid& grid, bool stochastic,
                                                   const UpdateRounding& how, std::uint64_t stream,
                                                   int part, std::int64_t i, float x) {
  if (!stochastic || grid.exact) return RoundToGrid(grid, x);
  const auto at = static_cast<std::uint64_t>(i);
  const std::uint64_t key = (how.seed ^ stream) + static_cast<std::uint64_t>(part);
  return RoundRandomlyToGrid(grid, x, Philox(key, how.draw, at / 4)[at % 4]);
}

// Counts for one kind of value. For the changes that the rule requested, in fp32 (with AdamW's
// decay): `zeros`: no change was requested; `lost`: one was, but the weight stayed the same;
// `zeros_after`: it stayed the same, whatever was requested;
// `overflow`: the new weight is above its format's largest value, `subnormal`: below its smallest
// normal one; sums and extremes are those of the requested changes. For stored values all words
// mean the same as in other roundings. Zero bytes are a valid start, except for min_bits.
struct UpdateCounts {
  std::int64_t values, zeros, zeros_after, lost, below, subnormal, overflow, inf, nan;
  std::int64_t denominators, zero_denominators;  // of pairs, as in TensorStats
  double sum, square, l1;
  std::uint32_t max_bits, min_bits;  // of magnitudes; min_bits: of those not 0, minus 1

  ADA_HOST_DEVICE static UpdateCounts Start() {
    UpdateCounts counts{};
    counts.min_bits = 0xffffffffu;
    return counts;
  }
  // rest_moved: a compensation took what the weight did not.
  ADA_HOST_DEVICE void AddChange(const NumberGrid& grid, float asked, float before, float sum_of,
                                 float after, bool rest_moved = false) {
    const std::uint32_t u = MagnitudeBits(asked);
    AddValue(grid, asked, sum_of, after);
    const bool stays = before == after && !rest_moved;  // -0 is 0
    zeros_after += stays;
    lost += u != 0 && u < kInfinityBits && stays;
    below += u == 0;
  }
  // `x` was stored as `after`.
  ADA_HOST_DEVICE void AddStored(const NumberGrid& grid, float x, float after) {
    const std::uint32_t u = MagnitudeBits(x);
    AddValue(grid, x, x, after);
    zeros_after += after == 0;
    lost += u != 0 && u < kInfinityBits && after == 0;
    below += u < grid.below_min;
  }
  // The stored average of a step, and the stored average that divides it.
  ADA_HOST_DEVICE void AddPair(float numerator, float denominator) {
    denominators += 1;
    zero_denominators += denominator == 0 && numerator != 0;
  }
  ADA_HOST_DEVICE void Merge(const UpdateCounts& of) {
    denominators += of.denominators, zero_denominators += of.zero_denominators;
    values += of.values, zeros += of.zeros, zeros_after += of.zeros_after;
    lost += of.lost, below += of.below;
    subnormal += of.subnormal, overflow += of.overflow, inf += of.inf, nan += of.nan;
    sum += of.sum, square += of.square, l1 += of.l1;
    max_bits = max_bits < of.max_bits ? of.max_bits : max_bits;
    min_bits = min_bits < of.min_bits ? min_bits : of.min_bits;
  }

 private:
  // Moments and extremes of `x`; where `wide` and what is kept of it lie in the format.
  ADA_HOST_DEVICE void AddValue(const NumberGrid& grid, float x, float wide_value, float after) {
    const std::uint32_t u = MagnitudeBits(x), wide = MagnitudeBits(wide_value);
    const std::uint32_t kept = MagnitudeBits(after);
    const double d = x;
    values += 1, zeros += u == 0;
    subnormal += kept != 0 && kept < grid.min_normal;
    overflow += wide >= grid.overflow_min && wide < kInfinityBits;
    inf += u == kInfinityBits, nan += u > kInfinityBits;
    sum += d, square += d * d, l1 += d < 0 ? -d : d;
    max_bits = max_bits < u ? u : max_bits;
    min_bits = min_bits < u - 1 ? min_bits : u - 1;
  }
};
inline TensorStats StatsOf(const UpdateCounts& counts) {
  TensorStats stats;
  stats.numel = counts.values, stats.zeros_before = counts.zeros;
  stats.zeros_after = counts.zeros_after;
  stats.below_min = counts.below;
  stats.underflow = counts.lost, stats.subnormal = counts.subnormal;
  stats.overflow = counts.overflow, stats.inf = counts.inf, stats.nan = counts.nan;
  if (counts.denominators > 0) stats.zero_denominators = counts.zero_denominators;
  stats.max_abs = OfBits(counts.max_bits), stats.l1 = counts.l1;
  stats.full = true;
  if (counts.values > 0) FinishStats(counts.sum, counts.square, counts.min_bits, stats);
  return stats;
}

// Counts for one parameter: its changes, and the stored values of its master and its states whose
// format is not fp32.
struct ParameterCounts {
  static constexpr int kParts = kUpdateParts;
  UpdateCounts of[kParts];
  ADA_HOST_DEVICE static ParameterCounts Start() {
    ParameterCounts counts;
    for (UpdateCounts& part : counts.of) part = UpdateCounts::Start();
    return counts;
  }
  ADA_HOST_DEVICE void Merge(const ParameterCounts& other) {
    for (int part = 0; part < kParts; ++part) of[part].Merge(other.of[part]);
  }
};
// What UpdateOp::Stats gives of slots with these counts.
template <class Slots>
std::vector<TensorStats> StatsOfSlots(const Slots& slots) {
  std::vector<TensorStats> stats;
  for (const ParameterCounts& counts : slots)
    for (const UpdateCounts& part : counts.of) stats.push_back(StatsOf(part));
  return stats;
}

// One weight with its states.
struct WeightAndStates {
  float value, state1, state2;
};
// The update of value i of a parameter: `kept` is replaced by the new stored values.
ADA_HOST_DEVICE static inline void UpdateAndRound(const UpdateScalars& s, const UpdateRounding& how,
                                                  bool adam, bool momentum, std::uint64_t stream,
                                                  std::int64_t i, float gradient,
                                                  WeightAndStates& kept, ParameterCounts* counts) {
  const float before = kept.value;
  const auto terms_by = [&](const auto& r) {
    return adam       ? AdamTerms(s, before, gradient, kept.state1, kept.state2, r)
           : momentum ? SgdMomentumTerms(s, before, gradient, kept.state1, r)
                      : SgdTerms(s, before, gradient, r);
  };
  const UpdateTerms terms =
      how.in_format ? terms_by(RoundedTo{{how.masters}}) : terms_by(Unrounded());
  const float sum = terms.sum();
  const WeightAndStates wide = kept;  // its states, as they were computed
  kept.value = RoundToStorage(how.masters, how.stochastic_masters, how, stream, 0, i, sum);
  kept.state1 = RoundToStorage(how.state, how.stochastic_state, how, stream, 1, i, kept.state1);
  kept.state2 = RoundToStorage(how.state, how.stochastic_state, how, stream, 2, i, kept.state2);
  if (counts == nullptr) return;
  const float asked = terms.step + (terms.base - before);
  counts->of[0].AddChange(how.masters, asked, before, sum, kept.value);
  if (!how.masters.exact) counts->of[1].AddStored(how.masters, sum, kept.value);
  if (how.state.exact) return;
  if (adam || momentum) counts->of[2].AddStored(how.state, wide.state1, kept.state1);
  if (!adam) return;
  counts->of[3].AddStored(how.state, wide.state2, kept.state2);
  counts->of[3].AddPair(kept.state1, kept.state2);
}

}  // namespace ada::backend
