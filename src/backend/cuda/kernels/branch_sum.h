// The sum of gradients where an output feeds several layers: the scale to which they are brought is
// found where they are. All of it follows BranchSumSpec to the bit.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/communicators.h"
#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "backend/decisions.h"
#include "number/host_device.h"
#include "scaling/rules/rules.h"

namespace ada::backend::cuda {

// One branch: its values, and what may tell their largest magnitude without looking.
// Filled when the op is made; scales, moments and statistics are read when the kernel runs, after
// the ops that wrote them.
struct BranchTerm {
  TensorSpan span;
  NumberGrid grid;
  const float* scale;
  const TensorMoments* moments;   // null: not taken
  const TensorStats* stats;       // of a rounding to nearest that keeps order; else null
  const float* per_tensor_scale;  // with stats; null: 1
  std::uint32_t first, channels;  // of the sum's channels, those that it holds
  // Where its largest magnitude goes in passes that leave it to the sum (DefersAmax), and what it
  // is not left in: passes that count, or that fill bins. Null: it never is.
  TensorStats* left;
  bool counted, has_bins;

  // The largest magnitude, as bits, of those of `values` values that thread `thread` of `threads`
  // looks at. It loads 16 bytes at a time where
  // they are aligned, and several times before it looks.
  ADA_HOST_DEVICE std::uint32_t LargestSeenBy(std::int64_t thread, std::int64_t threads,
                                              std::int64_t values) const {
    std::uint32_t largest = 0;
    if (reinterpret_cast<std::uintptr_t>(span.data) % 16 != 0)
      return LargestOfRest(thread, threads, 0, values, largest);
    if (span.storage == Storage::kF32) {
      ForEvery<4>(
          thread, values / 4, threads, [&](std::int64_t k) { return LoadVec4(span, 4 * k); },
          [&](std::int64_t, const Vec4& x) {
            for (const float one : x.of) largest = LargerBits(largest, MagnitudeBits(one));
          });
      return LargestOfRest(thread, threads, values / 4 * 4, values, largest);
    }
    std::uint32_t pairs = 0;
    ForEvery<4>(
        thread, values / 8, threads, [&](std::int64_t k) { return LoadVec8(span, 8 * k); },
        [&](std::int64_t, const Vec8Codes& codes) { pairs = JoinMagnitudes(pairs, codes); });
    largest = span.storage == Storage::kF16 ? LargestBits<StorageType::kF16>(pairs)
                                            : LargestBits<StorageType::kBF16>(pairs);
    return LargestOfRest(thread, threads, values / 8 * 8, values, largest);
  }

 private:
  static ADA_HOST_DEVICE std::uint32_t LargerBits(std::uint32_t a, std::uint32_t b) {
    return a > b ? a : b;
  }
  // Also of the values begin .. end - 1, which fill no 16 bytes.
  ADA_HOST_DEVICE std::uint32_t LargestOfRest(std::int64_t thread, std::int64_t threads,
                                              std::int64_t begin, std::int64_t end,
                                              std::uint32_t largest) const {
    for (std::int64_t k = begin + thread; k < end; k += threads)
      largest = LargerBits(largest, MagnitudeBits(Load(span, k)));
    return largest;
  }
};

// What all kernels of one sum share, in backend memory; arrays are of `count` branches.
// The kernels of one sum run in one stream: looking (if need be), the target, the sum, and its
// repair. `looked` is left zero for the next pass.
struct BranchSet {
  const BranchTerm* terms;
  int count;
  float* scales;
  float* factors;
  float* magnitudes;
  std::uint32_t* looked;  // largest magnitudes as bits, where there was need to look; else 0
  float* target;          // the sum's scale
  scaling::ScaleDecision* decision;  // null: nobody asks
  double u_max;
  const double* joined;    // largest magnitudes in all processes; null: this one is alone
  std::uint32_t channels;  // of the sum
  // What the pass has: values of the sum, and what it counts.
  std::int64_t values;
  bool counts, bins;

  // The number of values in branch i.
  ADA_HOST_DEVICE std::int64_t ValuesOf(int i) const {
    return values / channels * terms[i].channels;
  }
  // Whether it is left to the sum to record the largest magnitude of this branch.
  ADA_HOST_DEVICE bool IsLeft(const BranchTerm& term) const {
    return term.left != nullptr && !(counts && (term.counted || (bins && term.has_bins)));
  }
  // Whether nothing but its values tells it.
  ADA_HOST_DEVICE bool Looks(const BranchTerm& term) const {
    return term.moments == nullptr && (term.stats == nullptr || IsLeft(term));
  }

  ADA_HOST_DEVICE bool ScalesDiffer() const {
    for (int i = 1; i < count; ++i)
      if (*terms[i].scale != *terms[0].scale) return true;
    return false;
  }
  // Largest magnitude of one branch, as stored; infinite or NaN if it contains such values.
  ADA_HOST_DEVICE double LargestOf(int i) const {
    return joined != nullptr ? joined[i] : LargestHere(i);
  }
  // The same for this process's part.
  ADA_HOST_DEVICE double LargestHere(int i) const {
    const BranchTerm& term = terms[i];
    if (term.moments != nullptr) return backend::LargestOf(*term.moments);
    if (Looks(term)) return static_cast<double>(OfBits(looked[i]));
    const float own = term.per_tensor_scale != nullptr ? *term.per_tensor_scale : 1;
    return backend::LargestOf(term.grid, term.stats->max_abs, own);
  }
  // Largest unscaled magnitude over the branches; infinite where a branch is not finite.
  ADA_HOST_DEVICE double Largest() const {
    double largest = 0;
    for (int i = 0; i < count; ++i) largest = JoinBranch(largest, LargestOf(i), *terms[i].scale);
    return largest;
  }
  // Statistics of what is left to the sum, as StatsLevel::kLargest leaves them.
  ADA_HOST_DEVICE void Record() const {
    for (int i = 0; i < count; ++i) {
      if (!IsLeft(terms[i])) continue;
      TensorStats all;
      all.numel = ValuesOf(i), all.max_abs = OfBits(looked[i]);
      *terms[i].left = all;
    }
  }
  ADA_HOST_DEVICE void ForgetLooks() const {
    for (int i = 0; i < count; ++i) looked[i] = 0;
  }
  ADA_HOST_DEVICE void Write(float scale, int halvings, scaling::DecisionError error) const {
    *target = scale;
    if (decision == nullptr) return;
    *decision = BranchDecision(scale, halvings, error);
  }
};

// Stores this process's largest magnitude of branch i; TakeLargest reads those of all.
struct PutLargest {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    to[i] = set.LargestHere(static_cast<int>(i));
  }
  BranchSet set;
  double* to;
};
struct TakeLargest {
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    double largest = 0;
    for (int rank = 0; rank < ranks; ++rank) largest = LargerOf(largest, parts[rank * count + i]);
    joined[i] = largest;
  }
  const double* parts;
  int ranks;
  std::int64_t count;
  double* joined;
};

// Looks for the largest magnitudes of the branches that have to be looked at, where scales differ
// or `always`, and of those that are left to the sum. Blocks: `cuts` for each branch.
// Magnitudes meet as bits, by an atomic maximum: the order of blocks does not matter, and a NaN is
// the largest.
struct BranchLookKernel {
  static constexpr int kThreads = 256, kPhases = 2;
  struct Shared {
    std::uint32_t largest[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const int i = at.block / cuts;
    const BranchTerm& term = set.terms[i];
    if (!set.Looks(term) || !(always || set.IsLeft(term) || set.ScalesDiffer())) return;
    if constexpr (kPhase == 0) {
      shared.largest[at.thread] =
          set.terms[i].LargestSeenBy(std::int64_t{at.block % cuts} * kThreads + at.thread,
                                     std::int64_t{cuts} * kThreads, set.ValuesOf(i));
    } else if (at.thread == 0) {
      std::uint32_t largest = 0;
      for (const std::uint32_t u : shared.largest) largest = u > largest ? u : largest;
      AtomicMax(&set.looked[i], largest);
    }
  }

  BranchSet set;
  int cuts;
  bool always;
};

// The scale at which branches fit, and their factors. One block: the last that looked, if any did.
// One thread is enough for a few branches.
struct BranchTargetKernel {
  static constexpr int kThreads = 32, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (at.thread != 0) return;
    for (int i = 0; i < set.count; ++i) set.scales[i] = *set.terms[i].scale;
    float target = set.scales[0];
    scaling::DecisionError error = scaling::DecisionError::kNone;
    if (reference) {
      if (rescale) target = TargetOfReference();
      if (target != target) error = scaling::DecisionError::kNoTarget;
    } else if (set.ScalesDiffer()) {
      target = scaling::BranchTarget(set.scales, set.count, set.Largest(), set.u_max);
    }
    for (int i = 0; i < set.count; ++i) {
      const float factor = target / set.scales[i];
      set.factors[i] = !reference ? factor : rescale ? RoundToGrid(set.terms[i].grid, factor) : 1;
    }
    set.Record();
    set.ForgetLooks();
    set.Write(target, 0, error);
  }

  BranchSet set;
  bool reference, rescale;

 private:
  ADA_HOST_DEVICE float TargetOfReference() const {
    for (int i = 0; i < set.count; ++i) set.magnitudes[i] = static_cast<float>(set.LargestOf(i));
    const float largest = scaling::BranchLargestReference(set.magnitudes, set.scales, set.count);
    return scaling::BranchTargetReference(set.scales, set.count, largest,
                                          static_cast<float>(set.u_max));
  }
};

// The same in every block of the launch that sums, before its values, where nobody had to look: all
// find the same, and none waits for another. decides false: it was found before.
struct BranchTargetFirst {
  static constexpr int kThreads = kStatsThreads, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    BranchTargetKernel::Shared none;
    BranchTargetKernel::Own own;
    if (decides && at.thread == 0) target.template Run<0>(at, none, own);
  }

  BranchTargetKernel target;
  bool decides;
};

// Each branch times its factor, from left to right.
// A Value of RoundingStats::Round. The first two branches are members, since two is the usual
// number and the table costs a load for each value.
struct BranchSumValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    if (parts != 0) return OfParts(i, [this](int k) { return factors[k]; });
    float sum = Load(first, i) * factors[0];
    if (count > 1) sum = sum + Load(second, i) * factors[1];
    for (int k = 2; k < count; ++k) sum = sum + Load(terms[k].span, i) * factors[k];
    return sum;
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 sum;
    if (parts != 0) {
      ADA_UNROLL
      for (int k = 0; k < 4; ++k) sum.of[k] = (*this)(i + k);
      return sum;
    }
    sum = LoadVec4(first, i);
    ADA_UNROLL
    for (int k = 0; k < 4; ++k) sum.of[k] = sum.of[k] * factors[0];
    if (count > 1) Add(LoadVec4(second, i), factors[1], sum);
    for (int k = 2; k < count; ++k) Add(LoadVec4(terms[k].span, i), factors[k], sum);
    return sum;
  }
  static ADA_HOST_DEVICE void Add(const Vec4& term, float factor, Vec4& sum) {
    ADA_UNROLL
    for (int j = 0; j < 4; ++j) sum.of[j] = sum.of[j] + term.of[j] * factor;
  }
  // The same at 2^-halvings of the scale: factors anew, as they would be decided.
  // The repair of a sum that overflows asks for it (below).
  ADA_HOST_DEVICE float At(float target, const float* scales, std::int64_t i) const {
    if (parts != 0) return OfParts(i, [&](int k) { return target / scales[k]; });
    float sum = Load(first, i) * (target / scales[0]);
    if (count > 1) sum = sum + Load(second, i) * (target / scales[1]);
    for (int k = 2; k < count; ++k) sum = sum + Load(terms[k].span, i) * (target / scales[k]);
    return sum;
  }
  // The same for branches that have only some of the channels; where none has a value the sum
  // starts from -0, so that -0 plus -0 is -0.
  template <class FactorOf>
  ADA_HOST_DEVICE float OfParts(std::int64_t i, FactorOf&& factor) const {
    const auto at = static_cast<std::uint32_t>(i);
    const std::uint32_t pixel = at / parts, channel = at - pixel * parts;
    float sum = -0.0f;
    for (int k = 0; k < count; ++k) {
      const BranchTerm& term = terms[k];
      const std::uint32_t own = channel - term.first;  // of channels before it: a large number
      if (own < term.channels)
        sum = sum + Load(term.span, std::int64_t{pixel} * term.channels + own) * factor(k);
    }
    return sum;
  }

  // Two branches by eights (round_values.h).
  struct Held {
    float first, second;
  };
  struct Loaded {
    Vec8Codes first, second;
  };
  bool IsPlain(Storage storage) const {
    return parts == 0 && count == 2 && first.storage == storage && second.storage == storage &&
           HasVec8(first) && HasVec8(second);
  }
  ADA_HOST_DEVICE Held Hold(std::int64_t) const { return {factors[0], factors[1]}; }
  ADA_HOST_DEVICE Loaded LoadVec8At(std::int64_t i) const {
    return {LoadVec8(first, i), LoadVec8(second, i)};
  }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE Vec8 OfVec8(const Held& by, const Loaded& loaded) const {
    Vec8 sum = Widened<kStorageType>(loaded.first);
    const Vec8 other = Widened<kStorageType>(loaded.second);
    for (int k = 0; k < 8; ++k) sum.of[k] = sum.of[k] * by.first + other.of[k] * by.second;
    return sum;
  }

  TensorSpan first, second;
  const BranchTerm* terms;
  const float* factors;
  int count;
  std::uint32_t parts;  // channels of the sum, where branches have some of them; else 0
};

// The authors' way: every product and every partial sum is rounded.
// The last partial sum is rounded by RoundingStats::Round, which stores it.
struct BranchStepsValue {
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    float sum = Term(0, i);
    for (int k = 1; k < count; ++k) {
      sum = sum + Term(k, i);
      if (k + 1 < count) sum = RoundToGrid(grid, sum);
    }
    return sum;
  }
  ADA_HOST_DEVICE float Term(int k, std::int64_t i) const {
    return RoundToGrid(terms[k].grid, Load(terms[k].span, i) * factors[k]);
  }

  const BranchTerm* terms;
  const float* factors;
  int count;
  NumberGrid grid;  // of the sum
};

// --- Repair of a sum that overflows ---

// What one of several processes reports about its part of a sum.
struct BranchSumPart {
  std::uint32_t overflows;            // it reached u_max
  std::uint32_t halvings, first_nan;  // see BranchHalvings
};

// Where the fp32 sum of branches reached u_max though no branch did, the scale is halved until it
// does not, and the sum taken anew. That is rare, so one block does it all, the last of those that
// summed. How often the scale has to be halved. What the two kernels below share. `value` computes
// a sum anew at any scale, so that nothing but the branches has to be kept.
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
      if (!set.Looks(set.terms[i])) continue;
      AtomicMax(&set.looked[i], set.terms[i].LargestSeenBy(thread, kThreads, set.ValuesOf(i)));
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
