// Statistics of what a kernel rounds.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/launch.h"
#include "backend/stats_rules.h"
#include "number/host_device.h"
#include "number/stats.h"

namespace ada::backend::cuda {

// --- Bins by exponent ---

// Counting values by binary exponent (BinRange): inf, NaN and zeros have bins of their own after
// those of the exponents.
// Indices into an array of kCount counters of one launch.
struct LaunchBins : BinRange {
  static constexpr int kZeros = kExponents, kInf = kExponents + 1, kNan = kExponents + 2;
  static constexpr int kCount = kExponents + 3;
};

// The bin of a value whose magnitude has the bits u.
ADA_HOST_DEVICE inline int BinOf(std::uint32_t u, std::uint32_t mantissa) {
  if (u >= kInfinityBits) return u == kInfinityBits ? LaunchBins::kInf : LaunchBins::kNan;
  if (u == 0) return LaunchBins::kZeros;
  return ExponentOver(u, mantissa) - LaunchBins::kLowest;
}

// Writes entry `at` of `to` (0 .. kHighest - kLowest) from a launch's bins; exponent: of the scale.
ADA_HOST_DEVICE inline void WriteBin(const std::uint32_t* bins, int exponent, int at,
                                     ExponentBins& to) {
  const int bin = at + ExponentBins::kLowest + exponent - LaunchBins::kLowest;
  const bool inside = bin >= 0 && bin < LaunchBins::kExponents;
  (&to.counts[0])[at] = inside ? static_cast<std::int64_t>(bins[bin]) : 0;
}

// --- Statistics ---

// Rounding with counting: what a thread measures of the values that it rounds, and how a block and
// then the launch's last block bring the statistics together. Sums are in double, in an order fixed
// by the launch's shape; all else is whole numbers. A kernel that rounds:
//
//   template <StatsLevel kLevel> struct SomeKernel {
//     static constexpr int kThreads = kStatsThreads, kPhases = 2 + StatsPhases(kLevel);
//     struct Shared { StatsShared<kLevel> stats; };  struct Own { StatsOwn<kLevel> stats; };
//     template <int kPhase> ADA_HOST_DEVICE void Run(at, shared, own) const {
//       if constexpr (kPhase == 0) BeginStats(how, at, shared.stats, own.stats);
//       else if constexpr (kPhase == 1) { ... RoundAndCount(how, shared.stats, own.stats, x, i) }
//       else GatherStats<kPhase - 2>(how, at, shared.stats, own.stats);
//     }
//     Rounding how; ...
//   };
// Whole numbers that are measured. The first keep the largest, those from kLow on the smallest,
// those from kZeros on the sum.
namespace stat {
enum Int {
  kMax,    // bits of |x| before rounding
  kHigh,   // of what is stored, in an order of bits: the largest
  kLow,    // the smallest
  kLeast,  // bits of the smallest |x| that is not 0, minus 1
  kMin,    // the same before rounding
  kZeros,  // before rounding, as are the next, which leave zeros out
  kUnderflow,
  kBelowMin,
  kSubnormal,  // after rounding
  kOverflow,
  kInf,
  kNan,
  kAboveEdge,  // after rounding
  kInts
};
enum Sum { kStored, kStoredSquare, kBefore, kSquare, kL1, kSums };
}  // namespace stat

ADA_HOST_DEVICE constexpr int StatsInts(StatsLevel level) {
  return level == StatsLevel::kNone      ? 0
         : level == StatsLevel::kLargest ? 1
         : level == StatsLevel::kMoments ? static_cast<int>(stat::kMin)
                                         : static_cast<int>(stat::kInts);
}
ADA_HOST_DEVICE constexpr int StatsSums(StatsLevel level) {
  return level == StatsLevel::kCounts    ? static_cast<int>(stat::kSums)
         : level == StatsLevel::kMoments ? static_cast<int>(stat::kBefore)
                                         : 0;
}

inline constexpr int kStatsThreads = 256;

// Smallest values are kept as their complements, so that zeros are where all begins.
// One for each rounding, in backend memory; Conclude leaves it zero.
struct StatsTotals {
  std::uint32_t ints[stat::kInts];
  std::uint32_t bins[LaunchBins::kCount];
  std::uint32_t finished;  // blocks
};

// Arrays of length 1 replace those that a level does not need, because C++ has no empty arrays.
template <StatsLevel kLevel>
struct StatsShared {
  static constexpr bool kCounts = kLevel == StatsLevel::kCounts;
  double sums[StatsSums(kLevel) > 0 ? StatsSums(kLevel) : 1]
             [StatsSums(kLevel) > 0 ? kStatsThreads : 1];
  std::uint32_t ints[StatsInts(kLevel) > 0 ? StatsInts(kLevel) : 1]
                    [StatsInts(kLevel) > 0 ? kStatsThreads : 1];
  std::uint32_t bins[kCounts ? LaunchBins::kCount : 1];
  std::uint32_t is_last;
};
// A thread's running statistics, in registers between phases.
template <StatsLevel kLevel>
struct StatsOwn {
  RoundingNow now;
  std::uint32_t ints[StatsInts(kLevel) > 0 ? StatsInts(kLevel) : 1];
  double sums[StatsSums(kLevel) > 0 ? StatsSums(kLevel) : 1];
  float narrow_sum, narrow_square;
  std::uint32_t edge;  // the largest magnitude that does not lie above the edge
  std::uint32_t divisor;
};

// --- A thread ---

namespace stat {

// Fields are added up, kept as the largest or as the smallest.
ADA_HOST_DEVICE inline std::uint32_t Combine(int field, std::uint32_t a, std::uint32_t b) {
  if (field >= kZeros) return a + b;
  return (a > b) == (field < kLow) ? a : b;
}
ADA_HOST_DEVICE inline std::uint32_t Start(int field) {
  return field >= kLow && field < kZeros ? 0xffffffffu : 0;
}
// Bits in the order of numbers.
ADA_HOST_DEVICE inline std::uint32_t Ordered(float x) {
  const std::uint32_t bits = BitsOf(x);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}
ADA_HOST_DEVICE inline float FromOrdered(std::uint32_t key) {
  return OfBits((key & 0x80000000u) != 0 ? key ^ 0x80000000u : ~key);
}
// A NaN is no extreme; it shows in the sums.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void AddMoments(const Rounding& how, StatsOwn<kLevel>& own, float stored) {
  const std::uint32_t least = MagnitudeBits(stored) - 1;
  own.ints[kLeast] = Combine(kLeast, own.ints[kLeast], least);
  if (stored == stored) {
    const std::uint32_t key = Ordered(stored + 0.0f);  // zeros have no sign
    own.ints[kHigh] = Combine(kHigh, own.ints[kHigh], key);
    own.ints[kLow] = Combine(kLow, own.ints[kLow], key);
  }
  if (how.narrow) {
    own.narrow_sum += stored;
    own.narrow_square += stored * stored;
  } else {
    const double d = stored;
    own.sums[stat::kStored] += d;
    own.sums[stat::kStoredSquare] += d * d;
  }
}

// Values before and after rounding, scaled; x: before any scale of the tensor's own. A finite x
// that leaves fp32 when it is scaled overflows. Counters of a thread are 32 bits wide, as are
// totals of a launch: tensors have fewer values than 2^32.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void AddCounts(const Rounding& how, StatsShared<kLevel>& shared,
                                      StatsOwn<kLevel>& own, float x, float before, float after) {
  const NumberGrid& grid = how.grid;
  const std::uint32_t u = MagnitudeBits(x), scaled = MagnitudeBits(before);
  const std::uint32_t r = MagnitudeBits(after);
  own.ints[kMin] = Combine(kMin, own.ints[kMin], u - 1);
  own.ints[kZeros] += u == 0;
  own.ints[kUnderflow] += u != 0 && u <= kInfinityBits && r == 0;
  own.ints[kBelowMin] += u != 0 && scaled < grid.below_min;
  own.ints[kSubnormal] += r != 0 && r < grid.min_normal;
  own.ints[kOverflow] += scaled >= grid.overflow_min && u < kInfinityBits;
  own.ints[kInf] += u == kInfinityBits;
  own.ints[kNan] += u > kInfinityBits;
  own.ints[kAboveEdge] += r > own.edge && r <= kInfinityBits;
  const double d = x;
  own.sums[kBefore] += d;
  own.sums[kSquare] += d * d;
  own.sums[kL1] += d < 0 ? -d : d;
  if (how.bins != nullptr) AtomicAdd(&shared.bins[BinOf(u, own.divisor)], 1u);
}

template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void Add(const Rounding& how, StatsShared<kLevel>& shared,
                                StatsOwn<kLevel>& own, float x, const RoundedValue& v) {
  if constexpr (kLevel >= StatsLevel::kLargest)
    own.ints[kMax] = Combine(kMax, own.ints[kMax], MagnitudeBits(x));
  if constexpr (kLevel >= StatsLevel::kMoments) AddMoments(how, own, v.stored);
  if constexpr (kLevel >= StatsLevel::kCounts) AddCounts(how, shared, own, x, v.before, v.after);
}

}  // namespace stat

// In a phase before the first value.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void BeginStats(const Rounding& how, const ThreadIndex& at,
                                       StatsShared<kLevel>& shared, StatsOwn<kLevel>& own) {
  own.now = Now(how);
  if (how.scale_from != nullptr && at.block == 0 && at.thread == 0) *how.scale_to = *how.scale_from;
  for (int f = 0; f < StatsInts(kLevel); ++f) own.ints[f] = stat::Start(f);
  for (int f = 0; f < StatsSums(kLevel); ++f) own.sums[f] = 0;
  own.narrow_sum = own.narrow_square = 0;
  if constexpr (kLevel == StatsLevel::kCounts) {
    own.edge = EdgeBits(how.pass->edge, how.grid.largest_value);
    own.divisor = how.carried != nullptr ? Split(*how.carried).mantissa : 0;
    for (int k = at.thread; k < LaunchBins::kCount; k += kStatsThreads) shared.bins[k] = 0;
  }
}

// Rounds x, value i of the tensor, and measures it; returns what is to be stored.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline float RoundAndCount(const Rounding& how, StatsShared<kLevel>& shared,
                                           StatsOwn<kLevel>& own, float x, std::int64_t i) {
  const std::uint32_t word =
      how.stochastic ? RandomWord(own.now.key, own.now.draw, how.first + i) : 0;
  const RoundedValue v = RoundWith(how, own.now, x, word);
  stat::Add(how, shared, own, x, v);
  return v.stored;
}
// Values i .. i + 3, where 4 divides i: their random words are drawn together if possible.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline Vec4 RoundAndCountVec4(const Rounding& how, StatsShared<kLevel>& shared,
                                              StatsOwn<kLevel>& own, const Vec4& x,
                                              std::int64_t i) {
  Vec4Words words = {};
  if (how.stochastic) words = RandomWords(own.now.key, own.now.draw, how.first + i);
  Vec4 stored;
  for (int k = 0; k < 4; ++k) {
    const RoundedValue v = RoundWith(how, own.now, x.of[k], words.of[k]);
    stat::Add(how, shared, own, x.of[k], v);
    stored.of[k] = v.stored;
  }
  return stored;
}
// Measures a value that was rounded and stored before.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void CountStored(const Rounding& how, StatsShared<kLevel>& shared,
                                        StatsOwn<kLevel>& own, float stored) {
  stat::Add(how, shared, own, stored, RoundedAs(how, own.now, stored));
}

}  // namespace ada::backend::cuda

#include "backend/cuda/kernels/rounding_stats_inline.h"
