// NormaliseKernel (normalise.h) in the plain case of plain_values.h: x, the addend and what is
// stored are of the same 16 bits, and eight channels lie side by side.
#pragma once
#include "backend/cuda/kernels/normalise.h"
#include "backend/cuda/kernels/plain_values.h"

namespace ada::backend::cuda {

// kAdds: there is an addend. Of the levels none is above kLargest.
template <Lies kLies, bool kAdds, StatsLevel kY, StatsLevel kSum>
struct NormalisePlainKernel {
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
    EightCodes x, addend;
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

  ADA_HOST_DEVICE void Values(const ThreadIndex& at, Own& own) const {
    if (FirstEight(at, size) >= values) return;
    const std::uint32_t c = ChannelOf(FirstEight(at, size), norm.channels);
    const EightFloats mean = EightChannels(norm.mean, c), factor = EightChannels(norm.factor, c),
                      beta = EightChannels(norm.beta, c);
    ForEights(
        at, values, size, [&](std::int64_t i) { return LoadAt(i); },
        [&](std::int64_t i, const Loaded& loaded) {
          EightFloats v = Widened<kLies>(loaded.x);
          for (int k = 0; k < 8; ++k) v.of[k] = (v.of[k] - mean.of[k]) * factor.of[k] + beta.of[k];
          StoreEight(out, i, Finished(own, v, loaded));
        });
  }
  ADA_HOST_DEVICE Loaded LoadAt(std::int64_t i) const {
    if constexpr (kAdds) return {LoadEight(norm.x, i), LoadEight(addend, i)};
    return {LoadEight(norm.x, i), {}};
  }
  // Before a rounding the relu does what it does behind it.
  ADA_HOST_DEVICE EightCodes Finished(Own& own, const EightFloats& v, const Loaded& loaded) const {
    if constexpr (!kAdds) {
      const EightCodes codes = RoundEight<kLies>(own.y, v);
      return relu ? Narrowed<kLies>(Kept(v)) : codes;
    } else {
      EightFloats r = Widened<kLies>(RoundEight<kLies>(own.y, v));
      const EightFloats other = Widened<kLies>(loaded.addend);
      for (int k = 0; k < 8; ++k) r.of[k] = r.of[k] + other.of[k];
      const EightCodes codes = RoundEight<kLies>(own.sum, r);
      return relu ? Narrowed<kLies>(Kept(r)) : codes;
    }
  }
  // A NaN stays.
  ADA_HOST_DEVICE static EightFloats Kept(const EightFloats& v) {
    EightFloats kept;
    for (int k = 0; k < 8; ++k) kept.of[k] = v.of[k] <= 0 ? 0.0f : v.of[k];
    return kept;
  }

  Normalised norm;
  TensorSpan addend, out;
  bool relu = false;
  std::int64_t values = 0, size = 0;  // of all, of a block
  Rounding y, sum;
};

}  // namespace ada::backend::cuda
