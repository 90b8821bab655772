// Bringing notes together: threads of a block through shared memory, blocks through backend memory,
// where the block that ends last writes the tensor's statistics. Included by counting.h alone.
#pragma once
#include "backend/cuda/kernels/counting.h"

namespace ada::backend::cuda {

// Phases after the last value, in which all of a kernel's threads call GatherNotes.
inline constexpr int kNotePhases = 10;

namespace note {

inline constexpr int kGroup = 16;  // threads that bring one field together

// kNoteThreads values of each field become kGroup (first) and then one.
template <bool kFirst, class T, int kFields, class Join>
ADA_HOST_DEVICE inline void Gather(T (&fields)[kFields][kNoteThreads], int thread, Join&& join) {
  constexpr int kGroups = kNoteThreads / kGroup;
  const int lane = thread % kGroup;
  if (!kFirst && lane != 0) return;
  constexpr int kEnd = kFirst ? kNoteThreads : kGroup, kStep = kFirst ? kGroup : 1;
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
template <bool kFirst, NoteLevel kLevel>
ADA_HOST_DEVICE inline void GatherSums(NoteShared<kLevel>& shared, int thread) {
  if constexpr (NoteSums(kLevel) > 0) Gather<kFirst>(shared.sums, thread, JoinSums{});
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

template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void PutOwn(NoteShared<kLevel>& shared, NoteOwn<kLevel>& own, int thread) {
  if constexpr (NoteSums(kLevel) > 0) {
    own.sums[kStored] += static_cast<double>(own.narrow_sum);
    own.sums[kStoredSquare] += static_cast<double>(own.narrow_square);
    for (int f = 0; f < NoteSums(kLevel); ++f) shared.sums[f][thread] = own.sums[f];
  }
  for (int f = 0; f < NoteInts(kLevel); ++f) shared.ints[f][thread] = own.ints[f];
}

// The block's results into backend memory.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void WriteBlock(const Rounding& how, const ThreadIndex& at,
                                       const NoteShared<kLevel>& shared) {
  NoteTotals& totals = *how.totals;
  const int f = at.thread;
  if (f < NoteInts(kLevel)) {
    const std::uint32_t value = shared.ints[f][0];
    if (f >= kZeros)
      AtomicAdd(&totals.ints[f], value);
    else
      AtomicMax(&totals.ints[f], f < kLow ? value : ~value);
  }
  if (f < NoteSums(kLevel))
    how.block_sums[static_cast<std::int64_t>(f) * at.blocks + at.block] = shared.sums[f][0];
  if constexpr (kLevel == NoteLevel::kCounts) {
    if (how.bins == nullptr) return;
    for (int k = at.thread; k < LaunchBins::kCount; k += kNoteThreads)
      if (shared.bins[k] != 0) AtomicAdd(&totals.bins[k], shared.bins[k]);
  }
}

template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void ReadBlocks(const Rounding& how, const ThreadIndex& at,
                                       NoteShared<kLevel>& shared) {
  for (int f = 0; f < NoteSums(kLevel); ++f) {
    const double* sums = how.block_sums + static_cast<std::int64_t>(f) * at.blocks;
    double sum = 0;
    for (int k = at.thread; k < at.blocks; k += kNoteThreads) sum += sums[k];
    shared.sums[f][at.thread] = sum;
  }
}

// The smallest non-zero finite magnitude, of bits minus 1; 0 where there is none.
ADA_HOST_DEVICE inline float SmallestOf(std::uint32_t bits) {
  return bits >= kInfinityBits - 1 ? 0.0f : OfBits(bits + 1);
}

// The counts of all blocks; sums: of them, by kind.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline TensorStats StatsOf(const Rounding& how, const std::uint32_t* ints,
                                           const NoteShared<kLevel>& shared) {
  TensorStats stats;
  stats.numel = how.values;
  stats.max_abs = OfBits(ints[kMax]);
  if constexpr (kLevel == NoteLevel::kCounts) {
    if (!how.full) return stats;
    stats.full = true;
    stats.zeros_before = ints[kZeros];
    stats.underflow = ints[kUnderflow];
    stats.zeros_after = stats.zeros_before + stats.underflow;
    stats.below_min = stats.zeros_before + ints[kBelowMin];
    stats.subnormal = ints[kSubnormal];
    stats.overflow = ints[kOverflow];
    stats.inf = ints[kInf];
    stats.nan = ints[kNan];
    stats.above_edge = ints[kAboveEdge];
    stats.min_abs = SmallestOf(~ints[kMin]);
    const double n = static_cast<double>(how.values), square = shared.sums[kSquare][0];
    stats.mean = shared.sums[kBefore][0] / n;
    const double variance = square / n - stats.mean * stats.mean;
    stats.std = std::sqrt(variance < 0 ? 0 : variance);
    stats.l1 = shared.sums[kL1][0];
    stats.l2 = std::sqrt(square);
  }
  return stats;
}

template <NoteLevel kLevel>
ADA_HOST_DEVICE inline TensorMoments MomentsOf(const Rounding& how, const std::uint32_t* ints,
                                               const NoteShared<kLevel>& shared) {
  TensorMoments moments;
  const double n = static_cast<double>(how.values);
  moments.mean_square = shared.sums[kStoredSquare][0] / n;
  moments.min = FromOrdered(~ints[kLow]), moments.max = FromOrdered(ints[kHigh]);
  const bool is_nan = moments.mean_square != moments.mean_square;
  if (is_nan) moments.min = moments.max = OfBits(0x7fc00000u);
  if (how.size_only) {
    const float low = std::fabs(moments.min), high = std::fabs(moments.max);
    moments.max = low < high ? high : low;
    moments.min = -moments.max;
    return moments;
  }
  moments.min_abs = SmallestOf(~ints[kLeast]);
  moments.mean = shared.sums[kStored][0] / n;
  return moments;
}

// In the last block: what people and rules read; totals are left as the next launch wants them.
template <NoteLevel kLevel>
ADA_HOST_DEVICE inline void Conclude(const Rounding& how, int thread,
                                     const NoteShared<kLevel>& shared) {
  NoteTotals& totals = *how.totals;
  if constexpr (kLevel == NoteLevel::kCounts) {
    if (how.bins != nullptr) {
      const int exponent = how.carried != nullptr ? Split(*how.carried).exponent : 0;
      for (int k = thread; k <= ExponentBins::kHighest - ExponentBins::kLowest; k += kNoteThreads)
        WriteBin(totals.bins, exponent, k, *how.bins);
    }
  }
  if (thread != 0) return;
  if (how.stats != nullptr) *how.stats = StatsOf(how, totals.ints, shared);
  if constexpr (kLevel >= NoteLevel::kMoments)
    if (how.moments != nullptr) *how.moments = MomentsOf(how, totals.ints, shared);
  if (kLevel == NoteLevel::kCounts && how.bins != nullptr) {
    how.bins->zeros = totals.bins[LaunchBins::kZeros];
    how.bins->inf = totals.bins[LaunchBins::kInf];
    how.bins->nan = totals.bins[LaunchBins::kNan];
  }
  for (int f = 0; f < NoteInts(kLevel); ++f) totals.ints[f] = 0;
  totals.finished = 0;
}

}  // namespace note

// Phase kPhase of kNotePhases. Every block of the launch takes part, with all its threads.
template <int kPhase, NoteLevel kLevel>
ADA_HOST_DEVICE inline void GatherNotes(const Rounding& how, const ThreadIndex& at,
                                        NoteShared<kLevel>& shared, NoteOwn<kLevel>& own) {
  if constexpr (kLevel != NoteLevel::kNone) {
    if constexpr (kPhase == 0) note::PutOwn(shared, own, at.thread);
    if constexpr (kPhase == 1 || kPhase == 2) {
      note::GatherSums<kPhase == 1>(shared, at.thread);
      note::Gather<kPhase == 1>(shared.ints, at.thread, note::JoinInts{});
    }
    if constexpr (kPhase == 3) note::WriteBlock(how, at, shared);
    if constexpr (kPhase == 4)
      if (at.thread == 0)
        shared.is_last =
            note::TakeTicket(&how.totals->finished) + 1 == static_cast<std::uint32_t>(at.blocks);
    if constexpr (kPhase >= 5) {
      if (shared.is_last == 0) return;
      if constexpr (kPhase == 5) note::ReadBlocks(how, at, shared);
      if constexpr (kPhase == 6 || kPhase == 7) note::GatherSums<kPhase == 6>(shared, at.thread);
      if constexpr (kPhase == 8) note::Conclude(how, at.thread, shared);
      if constexpr (kPhase == 9 && kLevel == NoteLevel::kCounts)
        if (how.bins != nullptr)
          for (int k = at.thread; k < LaunchBins::kCount; k += kNoteThreads)
            how.totals->bins[k] = 0;
    }
  }
}

}  // namespace ada::backend::cuda
