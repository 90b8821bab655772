// What is noted while values are rounded: the lanes of a BlockStats. Which notes are taken is a
// compile-time choice, so that a step that is not logged pays only for the largest magnitude.
#pragma once
#include "backend/cpu/kernels/simd.h"

namespace ada::backend::cpu::ADA_ISA {

template <class Lanes>
double SumLanes(const Lanes& v) {
  double sum = 0;
  for (std::size_t i = 0; i < sizeof(v) / sizeof(v[0]); ++i) sum += static_cast<double>(v[i]);
  return sum;
}

// Two running sums of 16 lanes: fp32 where values are known to stay in range (emptied into double
// by Flush), fp64 otherwise.
template <bool kWide>
struct Sums;
template <>
struct Sums<false> {
  F sum{}, square{};
  ADA_INLINE void Add(F x) {
    sum += x;
    square += x * x;
  }
  void Flush(double& s, double& q) {
    s += SumLanes(sum);
    q += SumLanes(square);
    *this = Sums{};
  }
};
template <>
struct Sums<true> {
  D sum[2]{}, square[2]{};
  ADA_INLINE void Add(F x) {
    union {
      F f;
      F8 half[2];
    } u{x};
    for (int k = 0; k < 2; ++k) {
      const D d = __builtin_convertvector(u.half[k], D);
      sum[k] += d;
      square[k] += d * d;
    }
  }
  void Flush(double& s, double& q) {
    s += SumLanes(sum[0]) + SumLanes(sum[1]);
    q += SumLanes(square[0]) + SumLanes(square[1]);
    *this = Sums{};
  }
};

// kCount: every count and moment before rounding. kMoments: moments after rounding.
template <class Mode, bool kCount, bool kMoments>
class Counter {
 public:
  static constexpr int kFlushEvery = 256;  // calls of Add between calls of Flush, at most

  explicit Counter(const Rounding& rounding) : stats_(rounding.stats), grid_(rounding.format) {
    stats_ = stats_ ? stats_ : &ignored_;
    *stats_ = BlockStats{};
  }
  const Grid& grid() const { return grid_; }

  // x before, r after rounding. kTail: only lanes in `valid` count (x is zero elsewhere).
  template <bool kTail = false>
  ADA_INLINE void Add(F x, F r, I valid = I{}) {
    const U u = Magnitude(x);
    max_ = MaxBits(max_, u);
    if constexpr (kCount) AddCounts<kTail>(x, u, r, valid);
    if constexpr (kMoments) {
      rounded_.Add(r);
      if constexpr (kTail) {
        low_ = valid ? Min(low_, r) : low_;
        high_ = valid ? Max(high_, r) : high_;
      } else {
        low_ = Min(low_, r);
        high_ = Max(high_, r);
      }
    }
  }
  // Empties the fp32 sums.
  void Flush() {
    if constexpr (kMoments) rounded_.Flush(stats_->rounded_sum, stats_->rounded_square);
  }
  void Finish(std::int64_t values) {
    Flush();
    BlockStats& s = *stats_;
    s.values = values;
    for (int i = 0; i < kLanes; ++i) s.max_bits = max_[i] > s.max_bits ? max_[i] : s.max_bits;
    if constexpr (kCount) FinishCounts();
    if constexpr (kMoments) {
      s.rounded_min = low_[0], s.rounded_max = high_[0];
      for (int i = 1; i < kLanes; ++i) {
        s.rounded_min = low_[i] < s.rounded_min ? low_[i] : s.rounded_min;
        s.rounded_max = high_[i] > s.rounded_max ? high_[i] : s.rounded_max;
      }
    }
  }

 private:
  template <bool kTail>
  ADA_INLINE void AddCounts(F x, U u, F r, I valid) {
    const U ur = Magnitude(r);
    I zero = (I)u == 0, below = (I)u < (I)FillU(grid_.below_min);
    if constexpr (kTail) zero &= valid, below &= valid;
    min_ = MinBits(min_, u - 1u);
    zeros_ -= zero;
    below_ -= below;
    underflow_ -= (I)((u - 1u) < FillU(grid_.underflow_max));
    overflow_ -= ((I)u >= (I)FillU(grid_.overflow_min)) & ((I)u < (I)FillU(0x7f800000u));
    inf_ -= (I)u == (I)FillU(0x7f800000u);
    nan_ -= (I)u > (I)FillU(0x7f800000u);
    subnormal_ -= (I)((ur - 1u) < FillU(grid_.min_normal - 1u));
    before_.Add(x);
    union {
      F f;
      F8 half[2];
    } a{Float(u)};
    l1_[0] += __builtin_convertvector(a.half[0], D);
    l1_[1] += __builtin_convertvector(a.half[1], D);
  }
  void FinishCounts() {
    BlockStats& s = *stats_;
    for (int i = 0; i < kLanes; ++i) {
      s.min_bits = min_[i] < s.min_bits ? min_[i] : s.min_bits;
      s.zeros += zeros_[i], s.below_min += below_[i], s.underflow += underflow_[i];
      s.overflow += overflow_[i], s.inf += inf_[i], s.nan += nan_[i];
      s.subnormal += subnormal_[i];
    }
    before_.Flush(s.sum, s.sum_square);
    s.l1 = SumLanes(l1_[0]) + SumLanes(l1_[1]);
  }

  BlockStats* stats_;
  BlockStats ignored_;
  const Grid grid_;
  U max_{};
  U min_ = ~U{};
  I zeros_{}, below_{}, underflow_{}, overflow_{}, inf_{}, nan_{}, subnormal_{};
  Sums<true> before_;
  D l1_[2]{};
  Sums<Mode::kWide> rounded_;
  F low_ = Fill(__builtin_inff()), high_ = Fill(-__builtin_inff());
};

// Calls f(Mode, count, moments) with the last two as compile-time constants.
template <class Mode, class Call>
ADA_INLINE void DispatchNotes(const Rounding& rounding, Call&& f) {
  constexpr std::integral_constant<bool, true> yes;
  constexpr std::integral_constant<bool, false> no;
  if (rounding.stats == nullptr || (!rounding.count && !rounding.moments)) return f(no, no);
  if (rounding.count) return rounding.moments ? f(yes, yes) : f(yes, no);
  f(no, yes);
}

}  // namespace ada::backend::cpu::ADA_ISA
