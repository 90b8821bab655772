// Batch norm's channels: what the sums over parts (channel_sums.h) become, in one process or
// several.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/channel_sums.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Sums over parts ---

// Sums over parts are in double: lane k of a channel takes parts k, k + kLanes, ..., then the lanes
// are joined in their order.
struct LaneSums {
  double first, second;
};
struct PartLanes {
  static constexpr int kLanes = 32;
  std::int64_t parts = 0;
  // Lanes that have parts, and how many lane k has.
  ADA_HOST_DEVICE int Count() const { return parts < kLanes ? static_cast<int>(parts) : kLanes; }
  ADA_HOST_DEVICE std::int64_t PartsOf(int lane) const {
    return (parts - lane + kLanes - 1) / kLanes;
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

// The batch's statistics, from the parts' moments. Like ReduceGradient it tells what becomes of a
// channel's lanes: OfLane is a lane's sums, Finish uses those of all lanes; one thread calls Write
// after all blocks of the sums. The biased variance normalizes, the unbiased one goes into the
// running average. A lane's sums are of its parts' values and of squared deviations
// from its own mean; Chan's formula joins lanes. With several processes it stops at the sums of
// this one (NormPart).
struct BatchStatistics {
  ADA_HOST_DEVICE PartLanes lanes() const { return {parts}; }
  ADA_HOST_DEVICE double PixelsOf(std::int64_t part) const {
    return static_cast<double>(cut.Pixels(part, pixels));
  }
  ADA_HOST_DEVICE double PixelsOfLane(int lane) const {
    const std::int64_t all = lanes().PartsOf(lane) * cut.part_pixels;
    const bool has_last = (parts - 1) % PartLanes::kLanes == lane;
    return static_cast<double>(has_last ? all - (parts * cut.part_pixels - pixels) : all);
  }
  ADA_HOST_DEVICE LaneSums OfLane(std::int64_t c, int lane) const {
    double sum = 0, squares = 0;
    ForEvery<32>(
        lane, parts, PartLanes::kLanes,
        [&](std::int64_t part) { return part_mean[part * cut.channels + c]; },
        [&](std::int64_t part, float mean) { sum += PixelsOf(part) * static_cast<double>(mean); });
    const double mean = sum / PixelsOfLane(lane);
    ForEvery<16>(
        lane, parts, PartLanes::kLanes,
        [&](std::int64_t part) {
          const std::int64_t i = part * cut.channels + c;
          return MeanAndSquares{part_mean[i], part_m2[i]};
        },
        [&](std::int64_t part, const MeanAndSquares& of) {
          const double d = static_cast<double>(of.mean) - mean;
          squares += static_cast<double>(of.m2) + PixelsOf(part) * d * d;
        });
    return {sum, squares};
  }
  template <class Lanes>
  ADA_HOST_DEVICE void Finish(std::int64_t c, Lanes&& of_lane) const {
    const auto count = static_cast<double>(pixels);
    double sum = 0, m2 = 0;
    for (int k = 0; k < lanes().Count(); ++k) sum += of_lane(k).first;
    const double mean = sum / count;
    for (int k = 0; k < lanes().Count(); ++k) {
      const LaneSums lane = of_lane(k);
      const double n = PixelsOfLane(k), d = lane.first / n - mean;
      m2 += lane.second + n * d * d;
    }
    if (part.values != nullptr) return part.Put(c, cut.channels, count, mean, m2);
    to.Set(c, static_cast<float>(mean), m2 / count);
    MoveRunning(momentum, mean, m2, count, running_mean[c], running_var[c]);
  }
  ADA_HOST_DEVICE void Write() const { note.Write(); }
  ADA_HOST_DEVICE std::int64_t channels() const { return cut.channels; }

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

// dgamma and dbeta from the sums of the parts, and the means that dx needs. dgamma and dbeta are
// those of this process only, like all gradients before they are summed over processes; the means
// for dx must be over all processes.
struct ReduceGradient {
  ADA_HOST_DEVICE PartLanes lanes() const { return {parts}; }
  ADA_HOST_DEVICE LaneSums OfLane(std::int64_t c, int lane) const {
    return {SumOf(sum_dy, c, lane), SumOf(sum_dy_xhat, c, lane)};
  }
  ADA_HOST_DEVICE double SumOf(const float* sums, std::int64_t c, int lane) const {
    double sum = 0;
    ForEvery<16>(
        lane, parts, PartLanes::kLanes,
        [&](std::int64_t part_of) { return sums[part_of * cut.channels + c]; },
        [&](std::int64_t, float of) { sum += static_cast<double>(of); });
    return sum;
  }
  template <class Lanes>
  ADA_HOST_DEVICE void Finish(std::int64_t c, Lanes&& of_lane) const {
    double dy = 0, dy_xhat = 0;
    for (int k = 0; k < lanes().Count(); ++k) {
      const LaneSums lane = of_lane(k);
      dy += lane.first, dy_xhat += lane.second;
    }
    const ChannelGradient g =
        ChannelGradientOf(dy, dy_xhat, static_cast<double>(pixels), inverse[c], *scale);
    mean_dy[c] = g.mean_dy, slope[c] = g.slope;
    dbeta[c] = accumulate ? dbeta[c] + g.dbeta : g.dbeta;
    dgamma[c] = accumulate ? dgamma[c] + g.dgamma : g.dgamma;
    if (part.values != nullptr) part.Put(c, cut.channels, static_cast<double>(pixels), dy, dy_xhat);
  }
  ADA_HOST_DEVICE void Write() const { note.Write(); }
  ADA_HOST_DEVICE std::int64_t channels() const { return cut.channels; }

  PixelParts cut;
  std::int64_t parts = 0, pixels = 0;  // of the call
  const float *sum_dy = nullptr, *sum_dy_xhat = nullptr;
  const float *inverse = nullptr, *scale = nullptr;  // scale: dy's
  float *mean_dy = nullptr, *slope = nullptr;        // [channels]
  float *dgamma = nullptr, *dbeta = nullptr;
  bool accumulate = false;
  NormPart part;      // the sums, which dgamma and dbeta take as they are
  DeferredAmax note;  // of dy
};

// The totals in a launch of their own. A block has eight channels, whose lanes are neighbors in a
// warp's loads: 32 bytes of fp32.
template <class Of>
struct ChannelTotalsKernel {
  using First = Of;  // which names the kernel
  static constexpr int kChannels = 8, kThreads = kChannels * PartLanes::kLanes, kPhases = 2;
  struct Shared {
    LaneSums lanes[kThreads];
  };
  struct Own {};
  int Blocks() const { return static_cast<int>((of.channels() + kChannels - 1) / kChannels); }

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (kPhase == 0 && at.block == 0 && at.thread == 0) of.Write();
    const int channel = at.thread % kChannels, lane = at.thread / kChannels;
    const std::int64_t c = std::int64_t{at.block} * kChannels + channel;
    if (c >= of.channels() || lane >= of.lanes().Count()) return;
    if constexpr (kPhase == 0)
      shared.lanes[at.thread] = of.OfLane(c, lane);
    else if (lane == 0)
      of.Finish(c, [&](int k) { return shared.lanes[k * kChannels + channel]; });
  }

  Of of;
};

// Counters of SumsAndTotals, which are zero between launches: those of columns, then one of
// columns.
inline constexpr int kCountersOfColumn = PartLanes::kLanes + 1;
inline std::int64_t SumCounters(std::int64_t columns) { return columns * kCountersOfColumn + 1; }

// Sums of parts, and what they become, in one launch. Blocks of a column (ChannelThreads) draw two
// tickets: the last one of a lane's parts makes the lane's sums, and the last of those that did the
// channels. So no block reads more than one of 32 parts.
template <class Sums, class Of>
struct SumsAndTotals {
  using First = Sums;
  static constexpr int kThreads = Sums::kThreads, kLane = Sums::kPhases, kPhases = kLane + 4;
  static constexpr int kLanes = PartLanes::kLanes, kCounters = kCountersOfColumn;
  struct Shared {
    union {
      typename Sums::Shared sums;
      std::uint32_t is_last;
    };
  };
  using Own = typename Sums::Own;
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase < kLane) {
      sums.template Run<kPhase>(at, shared.sums, own);
      return;
    }
    const int columns = sums.threads.columns();
    const int column = at.block % columns, lane = at.block / columns % kLanes;
    std::uint32_t* const counters = finished + std::int64_t{column} * kCounters;
    const PartLanes parts = of.lanes();
    if constexpr (kPhase == kLane)
      if (at.thread == 0)
        shared.is_last = IsLast(counters + lane, static_cast<std::uint32_t>(parts.PartsOf(lane)));
    if constexpr (kPhase > kLane)
      if (shared.is_last == 0) return;
    if constexpr (kPhase == kLane + 1)
      ForChannels(at, column,
                  [&](std::int64_t c) { lanes[c * kLanes + lane] = of.OfLane(c, lane); });
    // Nobody but this thread looks before the next phase.
    if constexpr (kPhase == kLane + 2)
      if (at.thread == 0)
        shared.is_last = IsLast(counters + kLanes, static_cast<std::uint32_t>(parts.Count()));
    if constexpr (kPhase == kLane + 3) {
      ForChannels(at, column, [&](std::int64_t c) {
        of.Finish(c, [&](int k) { return lanes[c * kLanes + k]; });
      });
      // All columns have added to what Write takes.
      if (at.thread == 0 &&
          IsLast(finished + std::int64_t{columns} * kCounters, static_cast<std::uint32_t>(columns)))
        of.Write();
    }
  }

  Sums sums;
  Of of;
  std::uint32_t* finished;
  LaneSums* lanes;  // [channels, kLanes]

 private:
  // Whether this ticket is the last of so many, after which the counter is zero again.
  static ADA_HOST_DEVICE bool IsLast(std::uint32_t* counter, std::uint32_t of_all) {
    if (TakeTicket(counter) + 1 != of_all) return false;
    *counter = 0;
    return true;
  }
  template <class Do>
  ADA_HOST_DEVICE void ForChannels(const ThreadIndex& at, int column, Do&& act) const {
    const std::int64_t begin = std::int64_t{column} * PixelParts::kChannels;
    for (int c = at.thread; c < PixelParts::kChannels && begin + c < of.channels(); c += kThreads)
      act(begin + c);
  }
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
