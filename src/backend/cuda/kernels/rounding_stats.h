// Statistics of what a kernel rounds: what a thread measures, and how threads and blocks bring it
// together.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/rounding.h"
#include "backend/cuda/kernels/threads.h"
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
  ADA_UNROLL
  for (int f = 0; f < StatsInts(kLevel); ++f) own.ints[f] = stat::Start(f);
  ADA_UNROLL
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
  ADA_UNROLL
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

// --- Bringing them together ---

// Phases after the last value, in which all of a kernel's threads call GatherStats: the threads'
// own into shared memory; those of the block together and into backend memory; the ticket. In the
// last block: the sums of all blocks, those of its threads together; what comes of it; bins are
// cleared. None where nothing is measured.
// Each level needs as many barriers as it has steps of joining; sums need two more.
constexpr int StatsPhases(StatsLevel level) {
  return level == StatsLevel::kNone      ? 0
         : level == StatsLevel::kLargest ? 4
         : level == StatsLevel::kMoments ? 6
                                         : 7;
}

namespace stat {

inline constexpr int kGroup = 16;  // threads, of one warp, that bring one field together

struct JoinSums {
  ADA_HOST_DEVICE double operator()(double a, double b) const { return a + b; }
};
struct JoinInts {
  ADA_HOST_DEVICE std::uint32_t operator()(std::uint32_t a, std::uint32_t b) const {
    return Combine(field, a, b);
  }
  int field;
};

// In lane 0 of a group: the values of all threads. Lane k joins values k, k + kGroup, ..., then the
// lanes are joined in their order.
template <class T, class Join>
ADA_HOST_DEVICE inline T OfThreads(const T (&of)[kStatsThreads], int lane, const Join& join) {
  return JoinLanes<kGroup>(
      lane,
      [&](int first) {
        T all = of[first];
        for (int k = first + kGroup; k < kStatsThreads; k += kGroup) all = join(all, of[k]);
        return all;
      },
      join);
}

// fp32 sums of narrow formats end here, after the few values of one thread.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void PutOwn(StatsShared<kLevel>& shared, StatsOwn<kLevel>& own, int thread) {
  if constexpr (StatsSums(kLevel) > 0) {
    own.sums[kStored] += static_cast<double>(own.narrow_sum);
    own.sums[kStoredSquare] += static_cast<double>(own.narrow_square);
    ADA_UNROLL
    for (int f = 0; f < StatsSums(kLevel); ++f) shared.sums[f][thread] = own.sums[f];
  }
  ADA_UNROLL
  for (int f = 0; f < StatsInts(kLevel); ++f) shared.ints[f][thread] = own.ints[f];
}

// The block's results into backend memory: a group of threads a field.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void WriteBlock(const Rounding& how, const ThreadIndex& at,
                                       const StatsShared<kLevel>& shared) {
  StatsTotals& totals = *how.totals;
  const int lane = at.thread % kGroup;
  for (int f = at.thread / kGroup; f < StatsInts(kLevel); f += kStatsThreads / kGroup) {
    const std::uint32_t value = OfThreads(shared.ints[f], lane, JoinInts{f});
    if (lane != 0) continue;
    if (f >= kZeros)
      AtomicAdd(&totals.ints[f], value);
    else
      AtomicMax(&totals.ints[f], f < kLow ? value : ~value);
  }
  // From the last group on: the first have a field of the others.
  if constexpr (StatsSums(kLevel) > 0)
    for (int f = kStatsThreads / kGroup - 1 - at.thread / kGroup; f < StatsSums(kLevel);
         f += kStatsThreads / kGroup) {
      const double sum = OfThreads(shared.sums[f], lane, JoinSums{});
      if (lane == 0) how.block_sums[static_cast<std::int64_t>(f) * at.blocks + at.block] = sum;
    }
  if constexpr (kLevel == StatsLevel::kCounts) {
    if (how.bins == nullptr) return;
    for (int k = at.thread; k < LaunchBins::kCount; k += kStatsThreads)
      if (shared.bins[k] != 0) AtomicAdd(&totals.bins[k], shared.bins[k]);
  }
}

// In the last block: thread k takes blocks k, k + kStatsThreads, ..., in an order that the number
// of blocks fixes.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void ReadBlocks(const Rounding& how, const ThreadIndex& at,
                                       StatsShared<kLevel>& shared) {
  for (int f = 0; f < StatsSums(kLevel); ++f) {
    const double* sums = how.block_sums + static_cast<std::int64_t>(f) * at.blocks;
    double sum = 0;
    for (int k = at.thread; k < at.blocks; k += kStatsThreads) sum += sums[k];
    shared.sums[f][at.thread] = sum;
  }
}

// Leaves each sum where the first thread's was.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void JoinBlocks(int thread, StatsShared<kLevel>& shared) {
  const int lane = thread % kGroup;
  for (int f = thread / kGroup; f < StatsSums(kLevel); f += kStatsThreads / kGroup) {
    const double sum = OfThreads(shared.sums[f], lane, JoinSums{});
    if (lane == 0) shared.sums[f][0] = sum;
  }
}

// The counts of all blocks; sums: of them, by kind.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline TensorStats StatsOfLaunch(const Rounding& how, const std::uint32_t* ints,
                                                 const StatsShared<kLevel>& shared) {
  TensorStats stats;
  stats.numel = how.values;
  stats.max_abs = OfBits(ints[kMax]);
  if constexpr (kLevel == StatsLevel::kCounts) {
    if (!how.full) return stats;
    stats.full = true;
    stats.zeros_before = ints[kZeros];
    stats.underflow = ints[kUnderflow];
    // A format without NaN makes zeros of them; an unsigned one has none.
    const std::int64_t nan_zeros = how.grid.nan_keep == 0 ? ints[kNan] : 0;
    if (how.grid.is_signed) stats.zeros_after = stats.zeros_before + stats.underflow + nan_zeros;
    // Under a scale that is not finite, or 0, which values are divided by, all become NaN.
    const float own = how.per_tensor_scale != nullptr ? *how.per_tensor_scale : 1;
    if (!(own > 0 && own < INFINITY)) stats.underflow = stats.zeros_after = 0;
    stats.below_min = stats.zeros_before + ints[kBelowMin];
    stats.subnormal = ints[kSubnormal];
    stats.overflow = ints[kOverflow];
    stats.inf = ints[kInf];
    stats.nan = ints[kNan];
    stats.above_edge = ints[kAboveEdge];
    stats.l1 = shared.sums[kL1][0];
    FinishStats(shared.sums[kBefore][0], shared.sums[kSquare][0], ~ints[kMin], stats);
  }
  return stats;
}

template <StatsLevel kLevel>
ADA_HOST_DEVICE inline TensorMoments MomentsOfLaunch(const Rounding& how, const std::uint32_t* ints,
                                                     const StatsShared<kLevel>& shared) {
  const auto n = static_cast<double>(how.values);
  const double sum = shared.sums[kStored][0], square = shared.sums[kStoredSquare][0];
  const bool is_nan = square != square;
  const float min = is_nan ? OfBits(kQuietNanBits) : FromOrdered(~ints[kLow]);
  const float max = is_nan ? OfBits(kQuietNanBits) : FromOrdered(ints[kHigh]);
  return MomentsOf(n, sum, square, min, max, ~ints[kLeast], how.size_only);
}

// In the last block: what the host and rules read; totals are left as the next launch wants them.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void Conclude(const Rounding& how, int thread,
                                     const StatsShared<kLevel>& shared) {
  StatsTotals& totals = *how.totals;
  if constexpr (kLevel == StatsLevel::kCounts) {
    if (how.bins != nullptr) {
      const int exponent = how.carried != nullptr ? Split(*how.carried).exponent : 0;
      for (int k = thread; k <= ExponentBins::kHighest - ExponentBins::kLowest; k += kStatsThreads)
        WriteBin(totals.bins, exponent, k, *how.bins);
    }
  }
  if (thread != 0) return;
  if (how.stats != nullptr) *how.stats = StatsOfLaunch(how, totals.ints, shared);
  if constexpr (kLevel >= StatsLevel::kMoments)
    if (how.moments != nullptr) *how.moments = MomentsOfLaunch(how, totals.ints, shared);
  if (kLevel == StatsLevel::kCounts && how.bins != nullptr) {
    how.bins->zeros = totals.bins[LaunchBins::kZeros];
    how.bins->inf = totals.bins[LaunchBins::kInf];
    how.bins->nan = totals.bins[LaunchBins::kNan];
  }
  for (int f = 0; f < StatsInts(kLevel); ++f) totals.ints[f] = 0;
  totals.finished = 0;
}

}  // namespace stat

// Phase kPhase of StatsPhases. Every block of the launch takes part, with all its threads.
// Atomic operations join whole numbers alone; sums go to a place of each block, since the order of
// atomic additions would be another in each run.
template <int kPhase, StatsLevel kLevel>
ADA_HOST_DEVICE inline void GatherStats(const Rounding& how, const ThreadIndex& at,
                                        StatsShared<kLevel>& shared, StatsOwn<kLevel>& own) {
  if constexpr (kLevel != StatsLevel::kNone) {
    constexpr bool kSums = StatsSums(kLevel) > 0;
    constexpr int kConclude = kSums ? 5 : 3;
    if constexpr (kPhase == 0) stat::PutOwn(shared, own, at.thread);
    if constexpr (kPhase == 1) stat::WriteBlock(how, at, shared);
    if constexpr (kPhase == 2)
      if (at.thread == 0)
        shared.is_last =
            TakeTicket(&how.totals->finished) + 1 == static_cast<std::uint32_t>(at.blocks);
    if constexpr (kPhase >= 3) {
      if (shared.is_last == 0) return;
      if constexpr (kSums && kPhase == 3) stat::ReadBlocks(how, at, shared);
      if constexpr (kSums && kPhase == 4) stat::JoinBlocks(at.thread, shared);
      if constexpr (kPhase == kConclude) stat::Conclude(how, at.thread, shared);
      if constexpr (kPhase == kConclude + 1)
        if (how.bins != nullptr)
          for (int k = at.thread; k < LaunchBins::kCount; k += kStatsThreads)
            how.totals->bins[k] = 0;
    }
  }
}

}  // namespace ada::backend::cuda
