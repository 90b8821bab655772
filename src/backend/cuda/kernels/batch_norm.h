// Batch norm: what the sums over parts become by channel, in one process or several, and what is
// done value by value.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/channel_sums.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/formulas.h"

namespace ada::backend::cuda {

// --- Sums over parts ---

// Batch norm's channels: what the sums over parts (channel_sums.h) become. Sums over parts are in
// double: lane k of a channel takes parts k, k + kLanes, ..., then the lanes are added up in their
// order.
// Threads of a block: kLanes for each of kChannels channels.
// Channels are neighbors in a warp's loads: eight of them, 32 bytes of fp32, are read by
// neighboring threads.
struct ChannelLanes {
  static constexpr int kChannels = 8, kLanes = 32, kThreads = kChannels * kLanes;

  static int Blocks(std::int64_t channels) {
    return static_cast<int>((channels + kChannels - 1) / kChannels);
  }
  ADA_HOST_DEVICE static std::int64_t Channel(const ThreadIndex& at) {
    return std::int64_t{at.block} * kChannels + at.thread % kChannels;
  }
  ADA_HOST_DEVICE static int Lane(const ThreadIndex& at) { return at.thread / kChannels; }
  // The sum over the lanes of this thread's channel.
  ADA_HOST_DEVICE static double Sum(const double (&lanes)[kThreads], const ThreadIndex& at) {
    double sum = 0;
    for (int i = at.thread % kChannels; i < kThreads; i += kChannels) sum += lanes[i];
    return sum;
  }
};

// What one channel's values are normalized with.
// Written here, read by the kernels that normalize and differentiate.
struct ChannelFactors {
  float *mean = nullptr, *inverse = nullptr;  // inverse = 1 / sqrt(var + eps)
  float* factor = nullptr;                    // gamma * inverse
  const float* gamma = nullptr;
  double eps = 0;

  ADA_HOST_DEVICE void Set(std::int64_t c, float mean_of, double variance) const {
    mean[c] = mean_of;
    inverse[c] = InverseDeviation(variance, eps);
    factor[c] = gamma[c] * inverse[c];
  }
};

// One process's part of a batch norm's sums, [2 * channels + 1] doubles: the number of pixels, then
// two sums by channel.
struct NormPart {
  double* values = nullptr;  // null: the process is alone
  ADA_HOST_DEVICE void Put(std::int64_t c, std::int64_t channels, double count, double first,
                           double second) const {
    if (c == 0) values[0] = count;
    values[1 + c] = first, values[1 + channels + c] = second;
  }
};

// The batch's statistics, from the parts' moments: the biased variance normalizes, the unbiased one
// goes into the running average.
// Two passes over the parts' moments, as on a CPU: the mean of all, then squared deviations from
// it. With several processes it stops at their sums (NormPart), which batch_norm.h brings
// together.
struct BatchStatistics {
  static constexpr int kThreads = ChannelLanes::kThreads, kPhases = 3;
  struct Shared {
    double mean[kThreads], m2[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (kPhase == 0 && at.block == 0 && at.thread == 0) note.Write();
    const std::int64_t c = ChannelLanes::Channel(at);
    if (c >= cut.channels) return;
    if constexpr (kPhase == 0) {
      shared.mean[at.thread] = MeanOf(c, ChannelLanes::Lane(at));
    } else if constexpr (kPhase == 1) {
      const double mean = Total(ChannelLanes::Sum(shared.mean, at));
      shared.m2[at.thread] = SquaresOf(c, ChannelLanes::Lane(at), mean);
    } else if (ChannelLanes::Lane(at) == 0) {
      Finish(c, Total(ChannelLanes::Sum(shared.mean, at)), ChannelLanes::Sum(shared.m2, at));
    }
  }

  ADA_HOST_DEVICE double Total(double sum) const { return sum / count(); }

  ADA_HOST_DEVICE double count() const { return static_cast<double>(pixels); }
  ADA_HOST_DEVICE double PixelsOf(std::int64_t part) const {
    return static_cast<double>(cut.Pixels(part, pixels));
  }
  ADA_HOST_DEVICE double MeanOf(std::int64_t c, int lane) const {
    double sum = 0;
    ForEvery<32>(
        lane, parts, ChannelLanes::kLanes,
        [&](std::int64_t part) { return part_mean[part * cut.channels + c]; },
        [&](std::int64_t part, float mean) { sum += PixelsOf(part) * static_cast<double>(mean); });
    return sum;
  }
  ADA_HOST_DEVICE double SquaresOf(std::int64_t c, int lane, double mean) const {
    double sum = 0;
    ForEvery<16>(
        lane, parts, ChannelLanes::kLanes,
        [&](std::int64_t part) {
          const std::int64_t i = part * cut.channels + c;
          return MeanAndSquares{part_mean[i], part_m2[i]};
        },
        [&](std::int64_t part, const MeanAndSquares& of) {
          const double d = static_cast<double>(of.mean) - mean;
          sum += static_cast<double>(of.m2) + PixelsOf(part) * d * d;
        });
    return sum;
  }
  // One thread a channel.
  ADA_HOST_DEVICE void Finish(std::int64_t c, double mean, double m2) const {
    if (part.values != nullptr) return part.Put(c, cut.channels, count(), mean, m2);
    to.Set(c, static_cast<float>(mean), m2 / count());
    MoveRunning(momentum, mean, m2, count(), running_mean[c], running_var[c]);
  }

  PixelParts cut;
  std::int64_t parts = 0, pixels = 0;  // of the call
  const float *part_mean = nullptr, *part_m2 = nullptr;
  ChannelFactors to;
  float *running_mean = nullptr, *running_var = nullptr;
  double momentum = 0;
  NormPart part;      // where all is put instead
  DeferredAmax note;  // of x
};

// The statistics of the running averages, for evaluation, for all channels.
struct RunningStatistics {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    to.Set(c, running_mean[c], static_cast<double>(running_var[c]));
  }
  ChannelFactors to;
  const float *running_mean = nullptr, *running_var = nullptr;
};

// A layer's alpha multiplies its factors. For all channels.
struct ScaledFactors {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const { to[c] = factor[c] * *alpha; }
  const float *factor = nullptr, *alpha = nullptr;
  float* to = nullptr;
};

// Computes dgamma and dbeta from the sums of the parts, and the means that dx needs. dgamma and
// dbeta are those of this process only, like all gradients before they are summed over processes;
// the means for dx must be over all processes.
struct ReduceGradient {
  static constexpr int kThreads = ChannelLanes::kThreads, kPhases = 2;
  struct Shared {
    double dy[kThreads], dy_xhat[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (kPhase == 0 && at.block == 0 && at.thread == 0) note.Write();
    const std::int64_t c = ChannelLanes::Channel(at);
    if (c >= channels) return;
    if constexpr (kPhase == 0) {
      shared.dy[at.thread] = SumOf(sum_dy, c, ChannelLanes::Lane(at));
      shared.dy_xhat[at.thread] = SumOf(sum_dy_xhat, c, ChannelLanes::Lane(at));
    } else if (ChannelLanes::Lane(at) == 0) {
      Finish(c, ChannelLanes::Sum(shared.dy, at), ChannelLanes::Sum(shared.dy_xhat, at));
    }
  }

  ADA_HOST_DEVICE double SumOf(const float* sums, std::int64_t c, int lane) const {
    double sum = 0;
    ForEvery<32>(
        lane, parts, ChannelLanes::kLanes,
        [&](std::int64_t part) { return sums[part * channels + c]; },
        [&](std::int64_t, float of) { sum += static_cast<double>(of); });
    return sum;
  }
  ADA_HOST_DEVICE void Finish(std::int64_t c, double dy, double dy_xhat) const {
    const ChannelGradient g =
        ChannelGradientOf(dy, dy_xhat, static_cast<double>(pixels), inverse[c], *scale);
    mean_dy[c] = g.mean_dy, slope[c] = g.slope;
    dbeta[c] = accumulate ? dbeta[c] + g.dbeta : g.dbeta;
    dgamma[c] = accumulate ? dgamma[c] + g.dgamma : g.dgamma;
    if (part.values != nullptr) part.Put(c, channels, static_cast<double>(pixels), dy, dy_xhat);
  }

  std::int64_t channels = 0, parts = 0, pixels = 0;  // of the call
  const float *sum_dy = nullptr, *sum_dy_xhat = nullptr;
  const float *inverse = nullptr, *scale = nullptr;  // scale: dy's
  float *mean_dy = nullptr, *slope = nullptr;        // [channels]
  float *dgamma = nullptr, *dbeta = nullptr;
  bool accumulate = false;
  NormPart part;      // the sums, which dgamma and dbeta take as they are
  DeferredAmax note;  // of dy
};

// --- Several processes ---

// Batch norm's channels where several processes share the batch: sums over the parts of all, in the
// order of processes, as parts of one process are merged.
// What all processes have, one NormPart after the other.
struct NormParts {
  const double* values = nullptr;
  int ranks = 0;
  std::int64_t channels = 0;
  ADA_HOST_DEVICE const double* Of(int rank) const {
    return values + std::int64_t{rank} * (2 * channels + 1);
  }
  ADA_HOST_DEVICE double Count() const {
    double count = 0;
    for (int rank = 0; rank < ranks; ++rank) count += Of(rank)[0];
    return count;
  }
};

// Mean and squared deviations of channel c over all, from those of each. For all channels.
// The same formula as over parts of one process (BatchStatistics), in double, so that processes
// agree to the last bit. Runs in every process.
struct JoinStatistics {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    const double count = parts.Count();
    double mean = 0, m2 = 0;
    for (int rank = 0; rank < parts.ranks; ++rank)
      mean += parts.Of(rank)[0] * parts.Of(rank)[1 + c];
    mean /= count;
    for (int rank = 0; rank < parts.ranks; ++rank) {
      const double* of = parts.Of(rank);
      const double d = of[1 + c] - mean;
      m2 += of[1 + parts.channels + c] + of[0] * d * d;
    }
    to.Set(c, static_cast<float>(mean), m2 / count);
    MoveRunning(momentum, mean, m2, count, running_mean[c], running_var[c]);
  }

  NormParts parts;
  ChannelFactors to;
  float *running_mean = nullptr, *running_var = nullptr;
  double momentum = 0;
};

// Computes what dx needs from the sums over all processes. For all channels.
struct JoinGradientSums {
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    double dy = 0, dy_xhat = 0;
    for (int rank = 0; rank < parts.ranks; ++rank) {
      dy += parts.Of(rank)[1 + c];
      dy_xhat += parts.Of(rank)[1 + parts.channels + c];
    }
    const ChannelGradient g = ChannelGradientOf(dy, dy_xhat, parts.Count(), inverse[c], *scale);
    mean_dy[c] = g.mean_dy, slope[c] = g.slope;
  }

  NormParts parts;
  const float *inverse = nullptr, *scale = nullptr;
  float *mean_dy = nullptr, *slope = nullptr;
};

// --- All cases ---

// What batch norm does value by value: y, the residual sum and the relu in one launch, and the
// gradient.
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
