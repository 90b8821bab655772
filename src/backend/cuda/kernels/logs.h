// Mean and deviation of ln|x| over the non-zero values of a tensor (lognormal), in double and in an
// order fixed by the shape. The deviation of equal magnitudes is exactly 0.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/join_lanes.h"
#include "backend/cuda/kernels/last_block.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "scaling/rules/rules.h"

namespace ada::backend::cuda {

// Count, mean and sum of squared deviations.
struct LogMoments {
  double count, mean, m2;
};
// Chan's formula for two groups. Equal magnitudes have a delta of exactly 0, so that their
// deviation stays 0.
ADA_HOST_DEVICE inline LogMoments JoinLogs(const LogMoments& a, const LogMoments& b) {
  if (b.count == 0) return a;
  if (a.count == 0) return b;
  const double total = a.count + b.count, delta = b.mean - a.mean;
  return {total, a.mean + delta * (b.count / total),
          a.m2 + b.m2 + delta * delta * (a.count * b.count / total)};
}
// What a rule reads of them.
struct LogSums {
  double mean, deviation;
};
ADA_HOST_DEVICE inline LogSums SumsOf(const LogMoments& all) {
  return {all.mean, all.count > 0 ? std::sqrt(all.m2 / all.count) : 0};
}

// Only where the rule's next decision looks at logarithms.
// Phases 0 and 1: threads of a block, then the block; 2 and 3: the same over blocks, in the block
// that ends last.
struct LogsKernel {
  static constexpr int kThreads = 256, kPhases = 4;
  static constexpr int kLanes = 16;  // threads, of one warp, that join the others' results
  struct Shared {
    LogMoments logs[kThreads];
    std::uint32_t is_last;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if (!scaling::NeedsOf(*scaler).logs) return;
    if (kPhase >= 2 && shared.is_last == 0) return;
    if constexpr (kPhase == 0) shared.logs[at.thread] = OfThread(at);
    if constexpr (kPhase == 2) shared.logs[at.thread] = OfBlocks(at);
    if (kPhase % 2 == 0 || at.thread >= kLanes) return;
    const LogMoments all = OfAll(shared.logs, at.thread);
    if (at.thread != 0) return;
    if constexpr (kPhase == 1) {
      blocks[at.block] = all;
      shared.is_last = TakeTicket(finished) + 1 == static_cast<std::uint32_t>(at.blocks);
    }
    if constexpr (kPhase == 3) {
      *out = SumsOf(all);
      if (moments != nullptr) *moments = all;
      *finished = 0;
    }
  }

  const scaling::LayerScaler* scaler;
  TensorSpan x;
  std::int64_t values, size;  // of all, of a block
  LogMoments* blocks;
  std::uint32_t* finished;
  LogSums* out;
  LogMoments* moments = nullptr;  // likewise, of one of several processes

 private:
  static ADA_HOST_DEVICE LogMoments OfAll(const LogMoments (&logs)[kThreads], int lane) {
    return JoinLanes<kLanes>(
        lane,
        [&](int first) {
          LogMoments all = logs[first];
          for (int k = first + kLanes; k < kThreads; k += kLanes) all = JoinLogs(all, logs[k]);
          return all;
        },
        [](const LogMoments& a, const LogMoments& b) { return JoinLogs(a, b); });
  }
  // Deviations are taken from the first logarithm.
  // What cancellation leaves below 0 becomes 0; a NaN stays.
  ADA_HOST_DEVICE LogMoments OfThread(const ThreadIndex& at) const {
    const std::int64_t begin = at.block * size;
    const std::int64_t end = begin + size < values ? begin + size : values;
    double count = 0, first = 0, sum = 0, square = 0;
    for (std::int64_t i = begin + at.thread; i < end; i += kThreads) {
      const double v = Load(x, i);
      if (v == 0) continue;
      const double log = std::log(std::fabs(v));
      if (count == 0) first = log;
      count += 1;
      sum += log - first;
      square += (log - first) * (log - first);
    }
    if (count == 0) return {0, 0, 0};
    const double m2 = square - sum * sum / count;
    return {count, first + sum / count, m2 > 0 || m2 != m2 ? m2 : 0};
  }
  ADA_HOST_DEVICE LogMoments OfBlocks(const ThreadIndex& at) const {
    LogMoments all = {0, 0, 0};
    for (int k = at.thread; k < at.blocks; k += kThreads) all = JoinLogs(all, blocks[k]);
    return all;
  }
};

}  // namespace ada::backend::cuda
