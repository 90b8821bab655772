// What batch norm does value by value: y, the residual sum and the relu in one launch, and the
// gradient.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/formulas.h"

namespace ada::backend::cuda {

// y before rounding.
struct Normalized {
  ADA_HOST_DEVICE float At(float value, std::uint32_t c) const {
    return (value - mean[c]) * factor[c] + beta[c];
  }
  std::uint32_t channels = 1;
  TensorSpan x;
  const float *mean = nullptr, *factor = nullptr, *beta = nullptr;
};

// out = relu(round(round(y) + addend)), of which the addend and the relu may be absent. kY, kSum:
// what is measured of y and of the sum. Without `store` nothing is stored, y is only measured.
// Phases: begin the statistics, the values, then gather the statistics of y and those of the sum.
template <StatsLevel kY, StatsLevel kSum>
struct NormalizeKernel {
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

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      BeginStats(y, at, shared.y, own.y);
      BeginStats(sum, at, shared.sum, own.sum);
    } else if constexpr (kPhase == 1) {
      Values(at, shared, own);
    } else if constexpr (kPhase < kYEnd) {
      GatherStats<kPhase - 2>(y, at, shared.y, own.y);
    } else {
      GatherStats<kPhase - kYEnd>(sum, at, shared.sum, own.sum);
    }
  }

  ADA_HOST_DEVICE void Values(const ThreadIndex& at, Shared& shared, Own& own) const {
    ForFlatBlock(
        at, values, size, [&](std::int64_t i) { OfVec4(shared, own, i); },
        [&](std::int64_t i) { One(shared, own, i); });
  }
  ADA_HOST_DEVICE void One(Shared& shared, Own& own, std::int64_t i) const {
    const float value = norm.At(Load(norm.x, i), ChannelOf(i, norm.channels));
    float r = RoundAndCount(y, shared.y, own.y, value, i);
    // The addend and the sum are left to the launch that stores.
    if (!store) return;
    if (addend.data != nullptr) r = RoundAndCount(sum, shared.sum, own.sum, r + Load(addend, i), i);
    StoreExact(out, i, Kept(r));
  }
  ADA_HOST_DEVICE void OfVec4(Shared& shared, Own& own, std::int64_t i) const {
    Vec4 x = LoadVec4(norm.x, i);
    std::uint32_t c = ChannelOf(i, norm.channels);
    for (float& value : x.of) {
      value = norm.At(value, c);
      c = c + 1 == norm.channels ? 0 : c + 1;
    }
    Vec4 r = RoundAndCountVec4(y, shared.y, own.y, x, i);
    if (!store) return;
    if (addend.data != nullptr) {
      const Vec4 other = LoadVec4(addend, i);
      for (int k = 0; k < 4; ++k) r.of[k] = r.of[k] + other.of[k];
      r = RoundAndCountVec4(sum, shared.sum, own.sum, r, i);
    }
    for (float& value : r.of) value = Kept(value);
    StoreVec4(out, i, r);
  }
  // A NaN stays.
  ADA_HOST_DEVICE float Kept(float r) const { return relu && r <= 0 ? 0.0f : r; }

  Normalized norm;
  TensorSpan addend, out;
  bool relu = false, store = true;
  std::int64_t values = 0, size = 0;  // of all, of a block
  Rounding y, sum;
};

// Whether the eights of one thread (round_values.h) are of the same channels all along.
inline bool KeepsChannels(std::int64_t channels) {
  return channels % 8 == 0 && 8 * kStatsThreads % channels == 0;
}

// The largest number that rounds to 0, to nearest, in 16 bits.
inline float LargestZero(Storage storage) {
  return storage == Storage::kF16 ? 0x1p-25f : 0x1p-134f;
}

// dx before rounding, for RoundingStats::Round.
struct NormGradient {
  ADA_HOST_DEVICE float At(float value, float gradient, std::uint32_t c) const {
    // beta is given where dy was not masked in memory (Masks::kX).
    const float deviation = value - mean[c];
    if (beta != nullptr && !(deviation * factor[c] + beta[c] > largest_zero)) gradient = 0;
    const float g = gradient - mean_dy[c];
    return (g - deviation * slope[c]) * factor[c];
  }
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return At(Load(x, i), Load(dy, i), ChannelOf(i, channels));
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 r = LoadVec4(x, i);
    const Vec4 g = LoadVec4(dy, i);
    std::uint32_t c = ChannelOf(i, channels);
    for (int k = 0; k < 4; ++k) {
      r.of[k] = At(r.of[k], g.of[k], c);
      c = c + 1 == channels ? 0 : c + 1;
    }
    return r;
  }

  // By eights (round_values.h).
  struct Held {
    Vec8 mean, factor, mean_dy, slope, beta;
  };
  struct Loaded {
    Vec8Codes x, dy;
  };
  bool IsPlain(Storage storage) const {
    return KeepsChannels(channels) && x.storage == storage && dy.storage == storage && HasVec8(x) &&
           HasVec8(dy) && IsOnSixteen(beta);
  }
  // What a thread reads once for all its eights, which have the same channels.
  ADA_HOST_DEVICE Held Hold(std::int64_t i) const {
    const std::uint32_t c = ChannelOf(i, channels);
    return {Vec8Channels(mean, c), Vec8Channels(factor, c), Vec8Channels(mean_dy, c),
            Vec8Channels(slope, c), beta != nullptr ? Vec8Channels(beta, c) : Vec8{}};
  }
  ADA_HOST_DEVICE Loaded LoadVec8At(std::int64_t i) const {
    return {LoadVec8(x, i), LoadVec8(dy, i)};
  }
  template <StorageType kStorageType>
  ADA_HOST_DEVICE Vec8 OfVec8(const Held& of, const Loaded& loaded) const {
    Vec8 r = Widened<kStorageType>(loaded.x);
    const Vec8 g = Widened<kStorageType>(loaded.dy);
    for (int k = 0; k < 8; ++k) {
      const float deviation = r.of[k] - of.mean.of[k];
      const float y = deviation * of.factor.of[k] + of.beta.of[k];
      const bool passes = beta == nullptr || y > largest_zero;
      const float rest = (passes ? g.of[k] : 0.0f) - of.mean_dy.of[k];
      r.of[k] = (rest - deviation * of.slope.of[k]) * of.factor.of[k];
    }
    return r;
  }

  std::uint32_t channels = 1;
  TensorSpan x, dy;
  const float *mean = nullptr, *factor = nullptr, *mean_dy = nullptr, *slope = nullptr;
  // Null: dy is as it is to be. Else it is masked by the y that mean, factor and beta make.
  const float* beta = nullptr;
  float largest_zero = 0;  // with beta: of y's rounding
};

// --- The plain case ---

// NormalizeKernel in the plain case of round_values.h: x, the addend and what is
// stored are of the same 16 bits, and eight channels lie side by side.
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
