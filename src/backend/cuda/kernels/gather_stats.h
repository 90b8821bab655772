// Bringing statistics together: threads of a block through shared memory, blocks through backend
// memory, where the block that ends last writes the tensor's statistics. Included by
// rounding_stats.h alone.
#pragma once
#include "backend/cuda/kernels/rounding_stats.h"

namespace ada::backend::cuda {

// Phases after the last value, in which all of a kernel's threads call GatherStats.
inline constexpr int kStatsPhases = 10;
// None where nothing is measured.
constexpr int StatsPhases(StatsLevel level) {
  return level == StatsLevel::kNone ? 0 : kStatsPhases;
}

namespace stat {

inline constexpr int kGroup = 16;  // threads that bring one field together

// kStatsThreads values of each field become kGroup (first) and then one.
template <bool kFirst, class T, int kFields, class Join>
ADA_HOST_DEVICE inline void Gather(T (&fields)[kFields][kStatsThreads], int thread, Join&& join) {
  constexpr int kGroups = kStatsThreads / kGroup;
  const int lane = thread % kGroup;
  if (!kFirst && lane != 0) return;
  constexpr int kEnd = kFirst ? kStatsThreads : kGroup, kStep = kFirst ? kGroup : 1;
  for (int f = thread / kGroup; f < kFields; f += kGroups) {
    T all = fields[f][lane];
    for (int k = lane + kStep; k < kEnd; k += kStep) all = join(f, all, fields[f][k]);
    fields[f][lane] = all;
  }
}
struct JoinSums {
  ADA_HOST_DEVICE double operator()(int, double a, double b) const { return a + b; }
};
struct JoinInts {
  ADA_HOST_DEVICE std::uint32_t operator()(int field, std::uint32_t a, std::uint32_t b) const {
    return Combine(field, a, b);
  }
};
template <bool kFirst, StatsLevel kLevel>
ADA_HOST_DEVICE inline void GatherSums(StatsShared<kLevel>& shared, int thread) {
  if constexpr (StatsSums(kLevel) > 0) Gather<kFirst>(shared.sums, thread, JoinSums{});
}

// The ticket of a block whose results are written: how many came before it.
ADA_HOST_DEVICE inline std::uint32_t TakeTicket(std::uint32_t* finished) {
#ifdef __CUDA_ARCH__
  __threadfence();
  const std::uint32_t ticket = atomicAdd(finished, 1u);
  __threadfence();
  return ticket;
#else
  return (*finished)++;
#endif
}

template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void PutOwn(StatsShared<kLevel>& shared, StatsOwn<kLevel>& own, int thread) {
  if constexpr (StatsSums(kLevel) > 0) {
    own.sums[kStored] += static_cast<double>(own.narrow_sum);
    own.sums[kStoredSquare] += static_cast<double>(own.narrow_square);
    for (int f = 0; f < StatsSums(kLevel); ++f) shared.sums[f][thread] = own.sums[f];
  }
  for (int f = 0; f < StatsInts(kLevel); ++f) shared.ints[f][thread] = own.ints[f];
}

// The block's results into backend memory.
template <StatsLevel kLevel>
ADA_HOST_DEVICE inline void WriteBlock(const Rounding& how, const ThreadIndex& at,
                                       const StatsShared<kLevel>& shared) {
  StatsTotals& totals = *how.totals;
  const int f = at.thread;
  if (f < StatsInts(kLevel)) {
    const std::uint32_t value = shared.ints[f][0];
    if (f >= kZeros)
      AtomicAdd(&totals.ints[f], value);
    else
      AtomicMax(&totals.ints[f], f < kLow ? value : ~value);
  }
  if (f < StatsSums(kLevel))
    how.block_sums[static_cast<std::int64_t>(f) * at.blocks + at.block] = shared.sums[f][0];
  if constexpr (kLevel == StatsLevel::kCounts) {
    if (how.bins == nullptr) return;
    for (int k = at.thread; k < LaunchBins::kCount; k += kStatsThreads)
      if (shared.bins[k] != 0) AtomicAdd(&totals.bins[k], shared.bins[k]);
  }
}

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

// Phase kPhase of kStatsPhases. Every block of the launch takes part, with all its threads.
template <int kPhase, StatsLevel kLevel>
ADA_HOST_DEVICE inline void GatherStats(const Rounding& how, const ThreadIndex& at,
                                        StatsShared<kLevel>& shared, StatsOwn<kLevel>& own) {
  if constexpr (kLevel != StatsLevel::kNone) {
    if constexpr (kPhase == 0) stat::PutOwn(shared, own, at.thread);
    if constexpr (kPhase == 1 || kPhase == 2) {
      stat::GatherSums<kPhase == 1>(shared, at.thread);
      stat::Gather<kPhase == 1>(shared.ints, at.thread, stat::JoinInts{});
    }
    if constexpr (kPhase == 3) stat::WriteBlock(how, at, shared);
    if constexpr (kPhase == 4)
      if (at.thread == 0)
        shared.is_last =
            stat::TakeTicket(&how.totals->finished) + 1 == static_cast<std::uint32_t>(at.blocks);
    if constexpr (kPhase >= 5) {
      if (shared.is_last == 0) return;
      if constexpr (kPhase == 5) stat::ReadBlocks(how, at, shared);
      if constexpr (kPhase == 6 || kPhase == 7) stat::GatherSums<kPhase == 6>(shared, at.thread);
      if constexpr (kPhase == 8) stat::Conclude(how, at.thread, shared);
      if constexpr (kPhase == 9 && kLevel == StatsLevel::kCounts)
        if (how.bins != nullptr)
          for (int k = at.thread; k < LaunchBins::kCount; k += kStatsThreads)
            how.totals->bins[k] = 0;
    }
  }
}

}  // namespace ada::backend::cuda
