// What is measured while values are rounded: the lanes of a BlockStats. Which statistics are taken
// is a compile-time choice, so that a step that is not logged pays only for the largest magnitude.
#pragma once
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "backend/cpu/kernels/counts.h"
#include "backend/cpu/kernels/modes.h"

namespace ada::backend::cpu::ADA_ISA {

// Lane by lane, from memory: the compiler's own way of taking lanes out of registers is slow.
ADA_INLINE double SumLanes(const D& v) {
  double lanes[8], sum = 0;
  StoreParts(lanes, v);
  asm("" : "+m"(lanes));
  for (int i = 0; i < 8; ++i) sum += lanes[i];
  return sum;
}
ADA_INLINE double SumLanes(const F& v) {
  float lanes[kLanes];
  double sum = 0;
  StoreF(lanes, v);
  asm("" : "+m"(lanes));
  for (int i = 0; i < kLanes; ++i) sum += static_cast<double>(lanes[i]);
  return sum;
}

// Two running sums of 16 lanes: fp32 where values are known to stay in range (emptied into double
// by Flush), fp64 otherwise.
// Values in fp16 memory are the only ones whose squares stay within fp32 for as long as a loop
// goes.
template <bool kWide>
struct Sums;
template <>
struct Sums<false> {
  F sum{}, square{};
  ADA_INLINE void Add(F x) {
    sum += x;
    AddSquare(x);
  }
  ADA_INLINE void AddSquare(F x) { square += x * x; }
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
    D d[2];
    ToDoubles(x, d);
    for (int k = 0; k < 2; ++k) sum[k] += d[k], square[k] += d[k] * d[k];
  }
  ADA_INLINE void AddSquare(F x) {
    D d[2];
    ToDoubles(x, d);
    for (int k = 0; k < 2; ++k) square[k] += d[k] * d[k];
  }
  void Flush(double& s, double& q) {
    s += SumLanes(sum[0]) + SumLanes(sum[1]);
    q += SumLanes(square[0]) + SumLanes(square[1]);
    *this = Sums{};
  }
};

// Which moments are taken: kSize: the sum of squares and the largest magnitude.
enum class Moments : std::uint8_t { kNone, kSize, kAll };

// What is measured of values lane by lane. kTail: only the lanes in `valid` are values; the others
// are zero.
template <class Mode, Moments kMoments>
struct MomentLanes {};
template <class Mode>
struct MomentLanes<Mode, Moments::kAll> {  // of stored values, but their sums
  U least = ~U{};
  F low = Fill(__builtin_inff()), high = Fill(-__builtin_inff());

  template <bool kTail>
  ADA_INLINE void Add(F r, I valid) {
    least = MinBits(least, Magnitude(r) - 1u);
    if constexpr (kTail) {
      low = Select(valid, Min(low, r), low);
      high = Select(valid, Max(high, r), high);
    } else {
      low = Min(low, r);
      high = Max(high, r);
    }
  }
};
// Where the stored values follow from those before rounding, so does the largest magnitude.
template <class Mode>
struct MomentLanes<Mode, Moments::kSize> {
  static constexpr bool kFollows = Mode::kKeepsSigns;
  U most{};
  template <bool kTail>
  ADA_INLINE void Add(F r, I) {
    if constexpr (!kFollows) most = MaxBits(most, Magnitude(r));
  }
};

// kMax: the largest magnitude before rounding is wanted; where all is counted, the tally finds it.
template <class Mode, bool kMax, Moments kMoments>
struct StatsLanes {
  U max{};
  [[no_unique_address]] MomentLanes<Mode, kMoments> moments;

  template <bool kTail>
  ADA_INLINE void Add(F x, F stored, I valid) {
    if constexpr (kMax) max = MaxBits(max, Magnitude(x));
    if constexpr (kMoments != Moments::kNone) moments.template Add<kTail>(stored, valid);
  }
};

// The sums of a loop's values: one for each column of channels that it walks down.
template <class Mode, Moments kMoments, int kColumns>
struct LoopSums {
  Sums<Mode::kWide> columns[kColumns];
  ADA_INLINE void Add(F r, int column) {
    if constexpr (kMoments == Moments::kAll)
      columns[column].Add(r);
    else
      columns[column].AddSquare(r);
  }
};
template <class Mode, int kColumns>
struct LoopSums<Mode, Moments::kNone, kColumns> {
  ADA_INLINE void Add(F, int) {}
};

// Nothing is counted.
struct NoTally {
  NoTally(const Rounder&, bool) {}
};
struct NoLanes {};
// The most runs of a loop's values down two columns at a time.
inline constexpr int kMostRuns = 64;

// The statistics of a block. A loop works on a copy of the lanes (Begin, End) that nothing points
// to, so that they stay in registers.
// Made for one block in one thread: loops between Begin and End, then Finish. kCount: all of
// BlockStats; kMoments: the rounded_* fields; without either the largest magnitude alone. Loops go
// to one counter in the order of values, since sums depend on it.
template <class Mode, bool kCount, Moments kMoments>
class Counter {
  static constexpr bool kSums = kMoments != Moments::kNone;

 public:
  explicit Counter(const Rounding& rounding)
      : rounder_{rounding, kCount || Mode::kNeedsGrid ? Grid(rounding.format) : Grid{}},
        tally_(rounder_, kApart) {}

  // A copy of the running lanes for one inner loop. It may not outlive the counter.
  template <int kColumns = 1>
  class Loop {
   public:
    ADA_INLINE explicit Loop(Counter& c) : lanes_(c.lanes_), rounder_(c.rounder_) {
      if constexpr (kCount)
        kept_ = &c.tally_.kept(), at_ = c.tally_.Begin(), kept_lanes_ = c.tally_.lanes();
    }
    // Rounds values i .. of the block and measures them: what is to be stored. kTail: only the
    // lanes in `valid` are values.
    template <bool kTail = false>
    ADA_INLINE F Round(F x, std::int64_t i, I valid = I{}, int column = 0) {
      if constexpr (kTail) x = Only(valid, x);
      F r = x;
      // What rounding does is counted of scaled values; x and what is stored have no scale.
      if constexpr (Mode::kRounding == ModeRounding::kAnyWay) {
        const Rounded v = RoundAnyWay(x, i, rounder_);
        r = v.stored;
        if constexpr (kTail) r = Only(valid, r);
        Measure<kTail>(x, v.before, kTail ? Only(valid, v.after) : v.after, r, valid, column);
        return r;
      } else if constexpr (Mode::kRounding == ModeRounding::kCodes) {
        r = Mode::Nearest(x, rounder_.grid);
      }
      Measure<kTail>(x, x, r, r, valid, column);
      return r;
    }
    // The same, stored at out[i]; kRelu: what is stored is the relu of the rounded value.
    template <bool kTail, bool kRelu = false>
    ADA_INLINE void RoundInto(const TensorSpan& out, std::int64_t i, int lanes, F x,
                              int column = 0) {
      static_assert(!kRelu || !kSums);
      // A partial vector is rare: it takes the general way.
      if constexpr (kTail) {
        const F r = Round<true>(x, i, FirstLanes(lanes), column);
        Mode::StoreFirst(out, i, lanes, kRelu ? PositivePart(r) : r);
      } else if constexpr (Mode::kRounding == ModeRounding::kCodes &&
                           (!kRelu || Mode::kKeepsSigns)) {
        // The relu before the rounding gives the same as after it, and saves decoding the code
        // twice.
        const H code = Mode::Encode(kRelu ? PositivePart(x) : x, rounder_.grid);
        const F r = Mode::Decode(code);
        Measure<false>(x, x, r, r, I{}, column);
        Mode::StoreCode(out, i, code);
      } else {
        const F r = Round(x, i, I{}, column);
        Mode::Store(out, i, kRelu ? PositivePart(r) : r);
      }
    }
    // Measures values that were rounded and stored before.
    template <bool kTail = false>
    ADA_INLINE void Inspect(F x, I valid = I{}) {
      if constexpr (Mode::kRounding == ModeRounding::kAnyWay) {
        F r = RoundStored(x, rounder_);
        if constexpr (kTail) r = Only(valid, r);
        Measure<kTail>(x, r, r, x, valid, 0);
      } else {
        Measure<kTail>(x, x, x, x, valid, 0);
      }
    }

   private:
    friend class Counter;
    // Not every format rounds 0 to 0, nor is 0 times every factor 0.
    static ADA_INLINE F Only(I valid, F x) { return Float(Bits(x) & (U)valid); }
    // x: before any scale of the tensor's own.
    template <bool kTail>
    ADA_INLINE void Measure(F x, F before, F after, F stored, I valid, int column) {
      lanes_.template Add<kTail>(x, stored, valid);
      sums_.Add(stored, column);
      if constexpr (kCount) {
        StoreF(kept_->x + at_, x);
        if constexpr (kApart)
          StoreF(kept_->before + at_, before), StoreF(kept_->after + at_, after);
        at_ += kLanes;
        kept_lanes_.Add(kept_->x + at_ - kLanes, at_);
      }
    }
    StatsLanes<Mode, !kCount, kMoments> lanes_;
    [[no_unique_address]] LoopSums<Mode, kMoments, kColumns> sums_;
    CountBuffer* kept_ = nullptr;
    std::int64_t at_ = 0;
    [[no_unique_address]] std::conditional_t<kCount, BufferSums::Lanes, NoLanes> kept_lanes_;
    const Rounder& rounder_;
  };
  template <int kColumns = 1>
  ADA_INLINE Loop<kColumns> Begin() {
    return Loop<kColumns>(*this);
  }
  ADA_INLINE void End(Loop<1>& loop) {
    lanes_ = loop.lanes_;
    if constexpr (kCount) tally_.End(static_cast<int>(loop.at_), loop.kept_lanes_);
    if constexpr (kSums) Flush(loop.sums_.columns[0]);
  }
  // Run `run` of two columns: all runs of the first are summed up before those of the second, which
  // wait in the caller's `later` until EndSecond.
  using LaterSums = std::conditional_t<kSums, Sums<Mode::kWide>[3][kMostRuns], NoTally*>;
  template <int kColumns>
  ADA_INLINE void End(Loop<kColumns>& loop, LaterSums& later, int run) {
    static_assert(!kCount);
    lanes_ = loop.lanes_;
    if constexpr (kSums) {
      Flush(loop.sums_.columns[0]);
      for (int k = 1; k < kColumns; ++k) later[k - 1][run] = loop.sums_.columns[k];
    }
  }
  void EndSecond(LaterSums& later, int runs, int columns) {
    if constexpr (kSums)
      for (int k = 1; k < columns; ++k)
        for (int run = 0; run < runs; ++run) Flush(later[k - 1][run]);
  }

  // Writes the statistics of `values` values to the rounding's BlockStats.
  ADA_OUTLINE void Finish(std::int64_t values) {
    BlockStats& s = stats_;
    s.values = values;
    s.max_bits = std::max(s.max_bits, LargestOf(lanes_.max));
    if constexpr (kCount) tally_.Finish(values, s);
    if constexpr (kMoments == Moments::kAll) FinishMoments();
    if constexpr (kMoments == Moments::kSize) FinishSize();
    if (rounder_.rounding.stats != nullptr) *rounder_.rounding.stats = s;
  }

 private:
  // What is counted after rounding does not follow from the value before it.
  static constexpr bool kApart = Mode::kRounding == ModeRounding::kAnyWay;

  ADA_INLINE void Flush(Sums<Mode::kWide>& sums) {
    sums.Flush(stats_.rounded_sum, stats_.rounded_square);
  }
  // Extremes do not depend on the order of values: zeros have no sign, and if any value is NaN, the
  // extremes are NaN.
  void FinishMoments() {
    BlockStats& s = stats_;
    const MomentLanes<Mode, kMoments>& l = lanes_.moments;
    s.rounded_min = l.low[0], s.rounded_max = l.high[0];
    for (int i = 0; i < kLanes; ++i) {
      s.rounded_min_bits = l.least[i] < s.rounded_min_bits ? l.least[i] : s.rounded_min_bits;
      s.rounded_min = l.low[i] < s.rounded_min ? l.low[i] : s.rounded_min;
      s.rounded_max = l.high[i] > s.rounded_max ? l.high[i] : s.rounded_max;
    }
    // -0 becomes 0.
    s.rounded_min += 0.0f, s.rounded_max += 0.0f;
    if (s.rounded_square != s.rounded_square) s.rounded_min = s.rounded_max = __builtin_nanf("");
  }

  // Where kFollows, the largest magnitude after rounding is the rounded largest one before it, as
  // rounding to nearest keeps order: values after it need not be looked at.
  void FinishSize() {
    BlockStats& s = stats_;
    U most = FillU(s.max_bits);
    if constexpr (!MomentLanes<Mode, kMoments>::kFollows) most = lanes_.moments.most;
    F size = Float(most);
    if constexpr (MomentLanes<Mode, kMoments>::kFollows && Mode::kRounding == ModeRounding::kCodes)
      size = Mode::Nearest(size, rounder_.grid);
    s.rounded_max = Float(FillU(LargestOf(Bits(size))))[0];
    s.rounded_min = -s.rounded_max;
  }

  const Rounder rounder_;
  StatsLanes<Mode, !kCount, kMoments> lanes_;
  BlockStats stats_;
  [[no_unique_address]] std::conditional_t<kCount, CountTally, NoTally> tally_;
};

// Calls f(count, moments) with both as compile-time constants.
// Six combinations are compiled for each mode.
template <class Mode, class Call>
ADA_INLINE void DispatchStats(const Rounding& rounding, Call&& f) {
  constexpr std::true_type yes;
  constexpr std::false_type no;
  constexpr std::integral_constant<Moments, Moments::kNone> none;
  constexpr std::integral_constant<Moments, Moments::kSize> size;
  constexpr std::integral_constant<Moments, Moments::kAll> all;
  if (rounding.stats == nullptr || (!rounding.count && !rounding.moments)) return f(no, none);
  if (rounding.count && !rounding.moments) return f(yes, none);
  if (rounding.size_only) return rounding.count ? f(yes, size) : f(no, size);
  rounding.count ? f(yes, all) : f(no, all);
}

}  // namespace ada::backend::cpu::ADA_ISA
