// NormalizeKernel (normalize.h) in the plain case of plain_values.h: x, the addend and what is
// stored are of the same 16 bits, and eight channels lie side by side.
#pragma once
#include "backend/cuda/kernels/normalize.h"
#include "backend/cuda/kernels/plain_values.h"

namespace ada::backend::cuda {

// kAdds: there is an addend. No level is above kLargest.
// Chosen by the batch norm op where IsPlain; it gives the bits and the statistics of
// NormalizeKernel.
template <StorageType kStorageType, bool kAdds, StatsLevel kY, StatsLevel kSum>
struct NormalizePlainKernel {
  static constexpr int kYEnd = 2 + StatsPhases(kY);
  static constexpr int kThreads = kStatsThreads, kPhases = kYEnd + StatsPhases(kSum);
  struct Shared {
    StatsShared<kY> y;
    StatsShared<kSum> sum;
  };
  struct Own {
    StatsOwn<kY> y;
    StatsOwn<kSum> sum;
  };
  struct Loaded {
    Vec8Codes x, addend;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      BeginStats(y, at, shared.y, own.y);
      BeginStats(sum, at, shared.sum, own.sum);
    } else if constexpr (kPhase == 1) {
      Values(at, own);
    } else if constexpr (kPhase < kYEnd) {
      GatherStats<kPhase - 2>(y, at, shared.y, own.y);
    } else {
      GatherStats<kPhase - kYEnd>(sum, at, shared.sum, own.sum);
    }
  }

  // A thread's eights are all of the same channels (KeepsChannels), so that mean, factor and beta
  // are loaded once.
  ADA_HOST_DEVICE void Values(const ThreadIndex& at, Own& own) const {
    if (FirstVec8(at, size) >= values) return;
    const std::uint32_t c = ChannelOf(FirstVec8(at, size), norm.channels);
    const Vec8 mean = Vec8Channels(norm.mean, c), factor = Vec8Channels(norm.factor, c),
               beta = Vec8Channels(norm.beta, c);
    ForVec8(
        at, values, size, [&](std::int64_t i) { return LoadAt(i); },
        [&](std::int64_t i, const Loaded& loaded) {
          Vec8 v = Widened<kStorageType>(loaded.x);
          for (int k = 0; k < 8; ++k) v.of[k] = (v.of[k] - mean.of[k]) * factor.of[k] + beta.of[k];
          StoreVec8(out, i, Finished(own, v, loaded));
        });
  }
  ADA_HOST_DEVICE Loaded LoadAt(std::int64_t i) const {
    if constexpr (kAdds) return {LoadVec8(norm.x, i), LoadVec8(addend, i)};
    return {LoadVec8(norm.x, i), {}};
  }
  // Before a rounding the relu does what it does after it.
  ADA_HOST_DEVICE Vec8Codes Finished(Own& own, const Vec8& v, const Loaded& loaded) const {
    if constexpr (!kAdds) {
      const Vec8Codes codes = RoundVec8<kStorageType>(own.y, v);
      return relu ? Narrowed<kStorageType>(Kept(v)) : codes;
    } else {
      Vec8 r = Widened<kStorageType>(RoundVec8<kStorageType>(own.y, v));
      const Vec8 other = Widened<kStorageType>(loaded.addend);
      for (int k = 0; k < 8; ++k) r.of[k] = r.of[k] + other.of[k];
      const Vec8Codes codes = RoundVec8<kStorageType>(own.sum, r);
      return relu ? Narrowed<kStorageType>(Kept(r)) : codes;
    }
  }
  // A NaN stays.
  ADA_HOST_DEVICE static Vec8 Kept(const Vec8& v) {
    Vec8 kept;
    for (int k = 0; k < 8; ++k) kept.of[k] = v.of[k] <= 0 ? 0.0f : v.of[k];
    return kept;
  }

  Normalized norm;
  TensorSpan addend, out;
  bool relu = false;
  std::int64_t values = 0, size = 0;  // of all, of a block
  Rounding y, sum;
};

}  // namespace ada::backend::cuda
