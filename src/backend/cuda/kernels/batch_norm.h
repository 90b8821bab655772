// Batch norm's channels: what the sums over parts become, in one process or several.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/channel_sums.h"
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
// Written here, read by the kernels that normalize and differentiate (normalize.h).
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

}  // namespace ada::backend::cuda
