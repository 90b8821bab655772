// What is noted while values are rounded: the lanes of a BlockStats. Which notes are taken is a
// compile-time choice, so that a step that is not logged pays only for the largest magnitude.
#pragma once
#include <limits>

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

// What is noted of values lane by lane, in three parts. kTail: only the lanes in `valid` are
// values; the others are zero.
template <bool kCount>
struct CountLanes {  // every count and moment before rounding
  U min = ~U{};
  I zeros{}, zeros_after{}, below{}, beyond{}, not_finite{}, nan{}, subnormal{}, above_edge{};
  Sums<true> before;
  D l1[2]{};

  template <bool kTail>
  ADA_INLINE void Add(F x, F r, I valid, const Grid& grid, std::uint32_t edge) {
    const U u = Magnitude(x), ur = Magnitude(r);
    min = MinBits(min, u - 1u);
    if constexpr (kTail) {  // the lanes beyond are zero
      zeros -= (I)(u == 0u) & valid;
      zeros_after -= (I)(ur == 0u) & valid;
      below -= (I)(u < FillU(grid.below_min)) & valid;
    } else {
      CountEqual(zeros, u, U{});
      CountEqual(zeros_after, ur, U{});
      CountLess(below, u, FillU(grid.below_min));
    }
    CountLess(beyond, FillU(grid.overflow_min - 1), u);
    CountLess(not_finite, FillU(0x7f7fffffu), u);
    CountLess(nan, FillU(0x7f800000u), u);
    CountLess(subnormal, ur - 1u, FillU(grid.min_normal - 1));
    CountLess(above_edge, ur - (edge + 1), FillU(0x7f800000u - edge));
    before.Add(x);
    union {
      F f;
      F8 half[2];
    } a{Float(u)};
    l1[0] += __builtin_convertvector(a.half[0], D);
    l1[1] += __builtin_convertvector(a.half[1], D);
  }
};
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
template <>
struct CountLanes<false> {};
template <class Mode>
struct MomentLanes<Mode, false> {};

template <class Mode, bool kCount, bool kMoments>
struct NoteLanes {
  U max{};
  [[no_unique_address]] CountLanes<kCount> counts;
  [[no_unique_address]] MomentLanes<Mode, kMoments> moments;

  template <bool kTail>
  ADA_INLINE void Add(F x, F after, F stored, I valid, const Grid& grid, std::uint32_t edge) {
    max = MaxBits(max, Magnitude(x));
    if constexpr (kCount) counts.template Add<kTail>(x, after, valid, grid, edge);
    if constexpr (kMoments) moments.template Add<kTail>(stored, valid);
  }
};

// The notes of a block. A loop works on a copy of the lanes (Begin, End) that nothing points to, so
// that they stay in registers.
template <class Mode, bool kCount, bool kMoments>
class Counter {
 public:
  static constexpr int kEndAfter = 256;  // vectors between Begin and End, at most

  explicit Counter(const Rounding& rounding)
      : rounder_{rounding, kCount || Mode::kNeedsGrid ? Grid(rounding.format) : Grid{}},
        edge_(kCount ? EdgeBits(rounding) : 0) {}

  class Loop {
   public:
    ADA_INLINE explicit Loop(const Counter& c)
        : lanes_(c.lanes_), rounder_(c.rounder_), edge_(c.edge_) {}
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
        Note<kTail>(v.before, kTail ? Only(valid, v.after) : v.after, r, valid);
        return r;
      } else if constexpr (Mode::kRounding == ModeRounding::kCodes) {
        r = Mode::Nearest(x, rounder_.grid);
      }
      Note<kTail>(x, r, r, valid);
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
        Note<false>(x, r, r, I{});
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
        Note<kTail>(r, r, x, valid);
      } else {
        Note<kTail>(x, x, x, valid);
      }
    }

   private:
    friend class Counter;
    // Not every format rounds 0 to 0, nor is 0 times every factor 0.
    static ADA_INLINE F Only(I valid, F x) { return Float(Bits(x) & (U)valid); }
    template <bool kTail>
    ADA_INLINE void Note(F x, F after, F stored, I valid) {
      lanes_.template Add<kTail>(x, after, stored, valid, rounder_.grid, edge_);
    }
    NoteLanes<Mode, kCount, kMoments> lanes_;
    const Rounder& rounder_;
    const std::uint32_t edge_;
  };
  ADA_INLINE Loop Begin() const { return Loop(*this); }
  ADA_INLINE void End(const Loop& loop) {
    lanes_ = loop.lanes_;
    if constexpr (kMoments) lanes_.moments.sums.Flush(stats_.rounded_sum, stats_.rounded_square);
  }

  // Writes the notes of `values` values to the rounding's BlockStats.
  ADA_OUTLINE void Finish(std::int64_t values) {
    BlockStats& s = stats_;
    s.values = values;
    for (int i = 0; i < kLanes; ++i)
      s.max_bits = lanes_.max[i] > s.max_bits ? lanes_.max[i] : s.max_bits;
    if constexpr (kCount)
      if (rounder_.rounding.count) FinishCounts();
    if constexpr (kMoments) FinishMoments();
    if (rounder_.rounding.stats != nullptr) *rounder_.rounding.stats = s;
  }

 private:
  // Bits of the largest fp32 that does not lie above the edge.
  static std::uint32_t EdgeBits(const Rounding& rounding) {
    const double edge = rounding.edge * rounding.format.largest();
    if (!(edge < std::numeric_limits<float>::infinity())) return 0x7f800000u;
    const auto near = static_cast<float>(edge);
    return AsBits(near) - (static_cast<double>(near) > edge ? 1 : 0);
  }
  void FinishCounts() {
    BlockStats& s = stats_;
    CountLanes<kCount>& l = lanes_.counts;
    for (int i = 0; i < kLanes; ++i) {
      s.min_bits = l.min[i] < s.min_bits ? l.min[i] : s.min_bits;
      s.zeros += l.zeros[i], s.underflow += l.zeros_after[i] - l.zeros[i];
      s.below_min += l.below[i], s.subnormal += l.subnormal[i], s.above_edge += l.above_edge[i];
      s.overflow += l.beyond[i] - l.not_finite[i];
      s.inf += l.not_finite[i] - l.nan[i], s.nan += l.nan[i];
    }
    const NumberFormat& format = rounder_.rounding.format;
    if (!format.has_nan) s.underflow -= s.nan;  // they became zeros
    if (!format.is_signed) s.underflow = 0;     // there are no zeros
    l.before.Flush(s.sum, s.sum_square);
    s.l1 = SumLanes(l.l1[0]) + SumLanes(l.l1[1]);
  }
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
  const std::uint32_t edge_;
  NoteLanes<Mode, kCount, kMoments> lanes_;
  BlockStats stats_;
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
