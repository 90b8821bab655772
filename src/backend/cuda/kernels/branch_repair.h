// Where the fp32 sum of branches reached u_max though no branch did: the scale is halved until it
// does not, and the sum taken anew. That is rare, so one block does it all, the last of those that
// summed; nothing happens where the sum fits.
#pragma once
#include "backend/cuda/kernels/branch_sum.h"

namespace ada::backend::cuda {

// What one of several processes reports about its part of a sum.
struct BranchSumPart {
  std::uint32_t overflows;            // it reached u_max
  std::uint32_t halvings, first_nan;  // see BranchHalvings
};

// How often the scale has to be halved.
// What the two kernels below share. `value` computes a sum anew at any scale, so that nothing but
// the branches has to be kept.
struct BranchHalvings {
  BranchSet set;
  BranchSumValue value;
  TensorSpan out;
  Rounding how;
  const TensorStats* stats;  // of the sum as it was taken

  // Whether a sum with this magnitude reaches u_max.
  ADA_HOST_DEVICE bool Reaches(float magnitude) const {
    return static_cast<double>(magnitude) >= set.u_max;
  }
  // halvings: at which all sums fit; first_nan: at which one is NaN.
  ADA_HOST_DEVICE void Count(int thread, int threads, std::uint32_t* halvings,
                             std::uint32_t* first) const {
    std::uint32_t most = 0, first_nan = 0xffffffffu;
    for (std::int64_t i = thread; i < how.values; i += threads) {
      float target = *set.target;
      for (std::uint32_t k = 0; k < first_nan; ++k, target /= 2) {
        const float sum = value.At(target, set.scales, i);
        if (sum != sum) first_nan = k;
        if (sum != sum || !Reaches(std::fabs(sum)) || target < scaling::kSmallestBranchTarget) {
          most = k > most ? k : most;
          break;
        }
      }
    }
    AtomicMax(halvings, most);
    AtomicMin(first, first_nan);
  }
};

// What this process reports about its part. One block. All processes must halve as often
// as the one with the largest sum: first each reports what it needs, then all do the
// same.
struct BranchSumPartKernel : BranchHalvings {
  static constexpr int kThreads = 256, kPhases = 3;
  struct Shared {
    BranchSumPart part;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) {
      if (at.thread != 0) return;
      const bool is_nan = stats->max_abs != stats->max_abs;
      shared.part = {Reaches(stats->max_abs), 0, is_nan ? 0 : 0xffffffffu};
    } else if constexpr (kPhase == 1) {
      if (shared.part.overflows != 0)
        Count(at.thread, kThreads, &shared.part.halvings, &shared.part.first_nan);
    } else if (at.thread == 0) {
      *to = shared.part;
    }
  }

  BranchSumPart* to;
};

// parts: of `ranks` processes, by which all halve alike; null: this one is alone.
// Phases: whether anything is to be done; looking at branches nobody has measured; whether halving
// helps; how often; the factors; the sum once more; its statistics.
template <StatsLevel kLevel>
struct BranchRepairKernel : BranchHalvings {
  static constexpr int kThreads = kStatsThreads, kFirst = 5,
                       kPhases = kFirst + 1 + StatsPhases(kLevel);
  struct Shared {
    StatsShared<kLevel> stats;
    std::uint32_t halvings;   // at which all sums fit
    std::uint32_t first_nan;  // at which a sum is NaN
    std::uint32_t overflows;  // the sum does
    std::uint32_t again;      // it is taken anew
  };
  struct Own {
    StatsOwn<kLevel> stats;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      if (at.thread == 0) Begin(shared);
      return;
    }
    if (shared.overflows == 0 || (kPhase >= kFirst && shared.again == 0)) return;
    if constexpr (kPhase == 1) FindLargest(at.thread);
    if constexpr (kPhase == 2)
      if (at.thread == 0)
        shared.again = scaling::BranchesFit(*set.target, set.Largest(), set.u_max);
    if constexpr (kPhase == 3)
      if (shared.again != 0 && parts == nullptr)
        Count(at.thread, kThreads, &shared.halvings, &shared.first_nan);
    if constexpr (kPhase == 4) {
      if (at.thread == 0) Halve(shared);
      BeginStats(how, at, shared.stats, own.stats);
    }
    if constexpr (kPhase == kFirst) SumAgain(at.thread, shared, own);
    if constexpr (kPhase > kFirst)
      GatherStats<kPhase - kFirst - 1>(how, at, shared.stats, own.stats);
  }

  const BranchSumPart* parts;
  int ranks;

 private:
  // Starts from the sum's own statistics, or from the parts of all processes.
  ADA_HOST_DEVICE void Begin(Shared& shared) const {
    shared.overflows = parts == nullptr && Reaches(stats->max_abs);
    shared.halvings = shared.again = 0;
    shared.first_nan = 0xffffffffu;
    for (int rank = 0; rank < ranks; ++rank) {
      const BranchSumPart& part = parts[rank];
      shared.overflows |= part.overflows;
      shared.halvings = part.halvings > shared.halvings ? part.halvings : shared.halvings;
      shared.first_nan = part.first_nan < shared.first_nan ? part.first_nan : shared.first_nan;
    }
    if (*set.target < scaling::kSmallestBranchTarget) shared.overflows = 0;
  }
  ADA_HOST_DEVICE void FindLargest(int thread) const {
    if (parts != nullptr) return;
    for (int i = 0; i < set.count; ++i) {
      if (!set.terms[i].looks()) continue;
      std::uint32_t largest = 0;
      const std::int64_t values = set.ValuesOf(i, how.values);
      for (std::int64_t k = thread; k < values; k += kThreads) {
        const std::uint32_t u = MagnitudeBits(Load(set.terms[i].span, k));
        largest = u > largest ? u : largest;
      }
      AtomicMax(&set.looked[i], largest);
    }
  }
  // Halving ends at the first scale at which a sum is NaN, since no smaller one helps.
  ADA_HOST_DEVICE void Halve(Shared& shared) const {
    set.ForgetLooks();
    const std::uint32_t k = shared.first_nan < shared.halvings ? shared.first_nan : shared.halvings;
    if (k == 0) shared.again = 0;
    if (shared.again == 0) return;
    float target = *set.target;
    for (std::uint32_t i = 0; i < k; ++i) target /= 2;
    for (int i = 0; i < set.count; ++i) set.factors[i] = target / set.scales[i];
    set.Write(target, static_cast<int>(k), scaling::DecisionError::kNone);
  }
  ADA_HOST_DEVICE void SumAgain(int thread, Shared& shared, Own& own) const {
    for (std::int64_t i = thread; i < how.values; i += kThreads)
      StoreExact(out, i, RoundAndCount(how, shared.stats, own.stats, value(i), i));
  }
};

}  // namespace ada::backend::cuda
