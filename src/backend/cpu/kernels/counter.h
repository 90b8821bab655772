// What is noted while values are rounded: the lanes of a BlockStats. Which notes are taken is a
// compile-time choice, so that a step that is not logged pays only for the largest magnitude.
#pragma once
#include <type_traits>

#include "backend/cpu/kernels/counts.h"
#include "backend/cpu/kernels/modes.h"

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
      const D d = ToDouble(u.half[k]);
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

// What is noted of values lane by lane. kTail: only the lanes in `valid` are values; the others are
// zero.
template <class Mode, bool kMoments>
struct MomentLanes {  // of stored values
  Sums<Mode::kWide> sums;
  U least = ~U{};
  F low = Fill(__builtin_inff()), high = Fill(-__builtin_inff());

  template <bool kTail>
  ADA_INLINE void Add(F r, I valid) {
    sums.Add(r);
    least = MinBits(least, Magnitude(r) - 1u);
    if constexpr (kTail) {
      low = valid ? Min(low, r) : low;
      high = valid ? Max(high, r) : high;
    } else {
      low = Min(low, r);
      high = Max(high, r);
    }
  }
};
template <class Mode>
struct MomentLanes<Mode, false> {};

template <class Mode, bool kMax, bool kMoments>
struct NoteLanes {
  U max{};
  [[no_unique_address]] MomentLanes<Mode, kMoments> moments;

  template <bool kTail>
  ADA_INLINE void Add(F x, F stored, I valid) {
    if constexpr (kMax) max = MaxBits(max, Magnitude(x));
    if constexpr (kMoments) moments.template Add<kTail>(stored, valid);
  }
};

// Nothing is counted.
struct NoTally {
  NoTally(const Rounder&, bool) {}
};

// The notes of a block. A loop works on a copy of the lanes (Begin, End) that nothing points to, so
// that they stay in registers.
template <class Mode, bool kCount, bool kMoments>
class Counter {
 public:
  explicit Counter(const Rounding& rounding)
      : rounder_{rounding, kCount || Mode::kNeedsGrid ? Grid(rounding.format) : Grid{}},
        tally_(rounder_, kApart) {}

  class Loop {
   public:
    ADA_INLINE explicit Loop(Counter& c) : lanes_(c.lanes_), rounder_(c.rounder_) {
      if constexpr (kCount) kept_ = &c.tally_.kept(), at_ = c.tally_.Begin();
    }
    // Rounds values i .. of the block and notes them: what is to be stored. kTail: only the lanes
    // in `valid` are values.
    template <bool kTail = false>
    ADA_INLINE F Round(F x, std::int64_t i, I valid = I{}) {
      if constexpr (kTail) x = Only(valid, x);
      F r = x;
      if constexpr (Mode::kRounding == ModeRounding::kAnyWay) {
        const Rounded v = RoundAnyWay(x, i, rounder_);
        r = v.stored;
        if constexpr (kTail) r = Only(valid, r);
        Note<kTail>(x, v.before, kTail ? Only(valid, v.after) : v.after, r, valid);
        return r;
      } else if constexpr (Mode::kRounding == ModeRounding::kCodes) {
        r = Mode::Nearest(x, rounder_.grid);
      }
      Note<kTail>(x, x, r, r, valid);
      return r;
    }
    // The same, stored at out[i].
    template <bool kTail>
    ADA_INLINE void RoundInto(const Piece& out, std::int64_t i, int lanes, F x) {
      if constexpr (kTail) {
        Mode::StoreFirst(out, i, lanes, Round<true>(x, i, FirstLanes(lanes)));
      } else if constexpr (Mode::kRounding == ModeRounding::kCodes) {
        const H code = Mode::Encode(x, rounder_.grid);
        const F r = Mode::Decode(code);
        Note<false>(x, x, r, r, I{});
        Mode::StoreCode(out, i, code);
      } else {
        Mode::Store(out, i, Round(x, i));
      }
    }
    // Notes values that were rounded and stored before.
    template <bool kTail = false>
    ADA_INLINE void Inspect(F x, I valid = I{}) {
      if constexpr (Mode::kRounding == ModeRounding::kAnyWay) {
        F r = RoundStored(x, rounder_);
        if constexpr (kTail) r = Only(valid, r);
        Note<kTail>(x, r, r, x, valid);
      } else {
        Note<kTail>(x, x, x, x, valid);
      }
    }

   private:
    friend class Counter;
    // Not every format rounds 0 to 0, nor is 0 times every factor 0.
    static ADA_INLINE F Only(I valid, F x) { return Float(Bits(x) & (U)valid); }
    // x: before any scale of the tensor's own.
    template <bool kTail>
    ADA_INLINE void Note(F x, F before, F after, F stored, I valid) {
      lanes_.template Add<kTail>(before, stored, valid);
      if constexpr (kCount) {
        StoreF(kept_->x + at_, x);
        if constexpr (kApart)
          StoreF(kept_->before + at_, before), StoreF(kept_->after + at_, after);
        at_ += kLanes;
      }
    }
    NoteLanes<Mode, !kCount, kMoments> lanes_;
    KeptValues* kept_ = nullptr;
    std::int64_t at_ = 0;
    const Rounder& rounder_;
  };
  ADA_INLINE Loop Begin() { return Loop(*this); }
  ADA_INLINE void End(const Loop& loop) {
    lanes_ = loop.lanes_;
    if constexpr (kCount) tally_.End(static_cast<int>(loop.at_));
    if constexpr (kMoments) lanes_.moments.sums.Flush(stats_.rounded_sum, stats_.rounded_square);
  }

  // Writes the notes of `values` values to the rounding's BlockStats.
  ADA_OUTLINE void Finish(std::int64_t values) {
    BlockStats& s = stats_;
    s.values = values;
    for (int i = 0; i < kLanes; ++i)
      s.max_bits = lanes_.max[i] > s.max_bits ? lanes_.max[i] : s.max_bits;
    if constexpr (kCount) tally_.Finish(values, s);
    if constexpr (kMoments) FinishMoments();
    if (rounder_.rounding.stats != nullptr) *rounder_.rounding.stats = s;
  }

 private:
  // What is counted after rounding does not follow from the value before it.
  static constexpr bool kApart = Mode::kRounding == ModeRounding::kAnyWay;

  void FinishMoments() {
    BlockStats& s = stats_;
    const MomentLanes<Mode, kMoments>& l = lanes_.moments;
    s.rounded_min = l.low[0], s.rounded_max = l.high[0];
    for (int i = 0; i < kLanes; ++i) {
      s.rounded_min_bits = l.least[i] < s.rounded_min_bits ? l.least[i] : s.rounded_min_bits;
      s.rounded_min = l.low[i] < s.rounded_min ? l.low[i] : s.rounded_min;
      s.rounded_max = l.high[i] > s.rounded_max ? l.high[i] : s.rounded_max;
    }
  }

  const Rounder rounder_;
  NoteLanes<Mode, !kCount, kMoments> lanes_;
  BlockStats stats_;
  [[no_unique_address]] std::conditional_t<kCount, CountTally, NoTally> tally_;
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
