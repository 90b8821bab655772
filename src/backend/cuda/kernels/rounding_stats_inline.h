// Bringing statistics together: threads of a block through shared memory and shuffles, blocks
// through backend memory, where the block that ends last writes the tensor's statistics. Only
// rounding_stats.h includes it.
#pragma once
#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/threads.h"

namespace ada::backend::cuda {

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
    for (int f = 0; f < StatsSums(kLevel); ++f) shared.sums[f][thread] = own.sums[f];
  }
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
