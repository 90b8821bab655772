// A layer's decision, and what its rule looks at.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "scaling/rules/rules.h"

namespace ada::backend::cuda {

// --- Logarithms ---

// Mean and deviation of ln|x| over the non-zero values of a tensor (lognormal), in double and in an
// order fixed by the shape. The deviation of equal magnitudes is exactly 0.
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

// --- Exponents ---

// The exponents of a data gradient that exact_range looks at: counted by whole numbers alone.
// An observation, by one launch or by one of several processes.
struct TailPart {
  std::uint32_t bins[scaling::ExponentTail::kBins];
  std::uint32_t nonzero, max_bits;
};

// Totals over all blocks; zero between launches.
// In backend memory, one for each layer with exact_range.
struct TailTotals {
  TailPart all;
  std::uint32_t finished;
};

// Computes the tail of value(i) for all values (see round_values.h for Value), only if the
// layer's scaler wants that of this pass, and after its decision. The result is stored unless
// some value is not finite, or written to `part` to be joined with that of other processes. It
// uses dx before alpha, which this pass's decision has chosen already: the tail is for the next
// pass.
template <class Value>
struct TailKernel {
  static constexpr int kThreads = scaling::ExponentTail::kBins, kPhases = 7;
  static constexpr int kLanes = 16;  // threads that join the others' counts
  struct Shared {
    std::uint32_t bins[kThreads], nonzero[kThreads], max_bits[kThreads];
    std::uint32_t is_wanted, is_last;
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const int t = at.thread;
    if constexpr (kPhase == 0) {
      shared.bins[t] = 0;
      if (t == 0) shared.is_wanted = scaling::WantsTail(*scaler) ? 1 : 0;
      return;
    }
    if (shared.is_wanted == 0 || (kPhase >= 5 && shared.is_last == 0)) return;
    if constexpr (kPhase == 1) CountBlock(at, shared);
    if constexpr (kPhase == 2)
      if (t < kLanes) Join(shared, t, kLanes, kThreads);
    if constexpr (kPhase == 3) WriteBlock(t, shared);
    if constexpr (kPhase == 4)
      if (t == 0)
        shared.is_last = TakeTicket(&totals->finished) + 1 == static_cast<std::uint32_t>(at.blocks);
    if constexpr (kPhase == 5) HandOver(t);
    if constexpr (kPhase == 6)
      if (t == 0) totals->all.nonzero = totals->all.max_bits = totals->finished = 0;
  }

  scaling::LayerScaler* scaler;
  Value value;
  std::int64_t values, size;  // of all, of a block
  TailTotals* totals;
  TailPart* part;  // null: this process is alone

 private:
  // Bins are the exponents of fp32.
  ADA_HOST_DEVICE void CountBlock(const ThreadIndex& at, Shared& shared) const {
    const std::int64_t begin = at.block * size;
    const std::int64_t end = begin + size < values ? begin + size : values;
    std::uint32_t nonzero = 0, largest = 0;
    for (std::int64_t i = begin + at.thread; i < end; i += kThreads) {
      const std::uint32_t u = MagnitudeBits(value(i));
      nonzero += u != 0;
      largest = u > largest ? u : largest;
      if (u != 0) AtomicAdd(&shared.bins[u >> 23], 1u);
    }
    shared.nonzero[at.thread] = nonzero, shared.max_bits[at.thread] = largest;
  }
  static ADA_HOST_DEVICE void Join(Shared& shared, int first, int step, int end) {
    for (int k = first + step; k < end; k += step) {
      shared.nonzero[first] += shared.nonzero[k];
      if (shared.max_bits[k] > shared.max_bits[first]) shared.max_bits[first] = shared.max_bits[k];
    }
  }
  ADA_HOST_DEVICE void WriteBlock(int thread, Shared& shared) const {
    if (shared.bins[thread] != 0) AtomicAdd(&totals->all.bins[thread], shared.bins[thread]);
    if (thread != 0) return;
    Join(shared, 0, 1, kLanes);
    AtomicAdd(&totals->all.nonzero, shared.nonzero[0]);
    AtomicMax(&totals->all.max_bits, shared.max_bits[0]);
  }
  // A bin by each thread; the first one tells the rest.
  // All threads read max_bits here, which is why it is zeroed one phase later.
  ADA_HOST_DEVICE void HandOver(int thread) const {
    TailPart& all = totals->all;
    const bool finite = all.max_bits < kInfinityBits;
    if (part != nullptr)
      part->bins[thread] = all.bins[thread];
    else if (finite)
      scaler->state.tail.bins[thread] = all.bins[thread];
    all.bins[thread] = 0;
    if (thread != 0) return;
    if (part != nullptr)
      part->nonzero = all.nonzero, part->max_bits = all.max_bits;
    else if (finite)
      scaling::FinishTail(*scaler, all.nonzero, static_cast<double>(OfBits(all.max_bits)));
  }
};

// --- The decision ---

// A layer's decision, made where it is used: the extremes of the products that element_wise_range
// looks at, and the rule itself.
// By channel, as bits: the complement of the smallest non-zero magnitude minus 1, and the largest
// magnitude. Zeros where there is none.
// Kernels that look at magnitudes add to it by atomic maxima; DecideKernel reads it and leaves
// zeros for the next pass.
struct ChannelMagnitudes {
  std::uint32_t* low;
  std::uint32_t* high;
};
// The range that a thread has found for one channel, or for all products.
struct MagnitudeRange {
  std::uint32_t low, high;
  ADA_HOST_DEVICE void Add(float x) {
    const std::uint32_t u = MagnitudeBits(x), complement = ~(u - 1);
    low = complement > low ? complement : low;
    high = u > high ? u : high;
  }
  ADA_HOST_DEVICE void Write(const ChannelMagnitudes& to, std::int64_t c) const {
    AtomicMax(&to.low[c], low);
    AtomicMax(&to.high[c], high);
  }
};

// Magnitudes of [pixels, channels], if the rule's next decision uses products. Blocks: `cuts` of
// the pixels for each 32 channels. Does nothing in a pass whose rule does not use products, which
// only the device knows.
struct ImageMagnitudesKernel {
  static constexpr int kThreads = 256, kPhases = 1, kChannels = 32;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (!scaling::NeedsOf(*scaler).products) return;
    const std::int64_t c = at.block / cuts * kChannels + at.thread % kChannels;
    if (c >= channels) return;
    MagnitudeRange range = {0, 0};
    const std::int64_t step = std::int64_t{cuts} * (kThreads / kChannels);
    for (std::int64_t p = at.block % cuts * (kThreads / kChannels) + at.thread / kChannels;
         p < pixels; p += step)
      range.Add(Load(x, p * channels + c));
    range.Write(to, c);
  }
  static int Blocks(std::int64_t channels, int cuts) {
    return static_cast<int>((channels + kChannels - 1) / kChannels) * cuts;
  }

  const scaling::LayerScaler* scaler;
  TensorSpan x;
  std::int64_t pixels, channels;
  int cuts;
  ChannelMagnitudes to;
};

// For weights, [channels / group, inputs, group, values]: a block a channel.
struct RowMagnitudesKernel {
  static constexpr int kThreads = 256, kPhases = 1;
  struct Shared {};
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared&, Own&) const {
    if (!scaling::NeedsOf(*scaler).products) return;
    MagnitudeRange range = {0, 0};
    const std::int64_t first = at.block / group * inputs * group + at.block % group;
    for (std::int64_t i = at.thread; i < values * inputs; i += kThreads)
      range.Add(Load(w, (first + i / values * group) * values + i % values));
    range.Write(to, at.block);
  }

  const scaling::LayerScaler* scaler;
  TensorSpan w;
  std::int64_t values, inputs, group;
  ChannelMagnitudes to;
};

// A decision by moments, and by what else was seen: alpha, and the scale that dx will carry.
struct DecideByMoments {
  ADA_HOST_DEVICE void Decide(scaling::Observation seen = {}) const {
    if (scaling::NeedsOf(*scaler).moments) {
      seen.dy = *dy_moments;
      if (w_moments != nullptr) seen.w = *w_moments;
    }
    scaling::Decide(*scaler, seen, *scale_in);
    *scale_out = scaler->decision.scale_out;
  }

  scaling::LayerScaler* scaler;
  const TensorMoments* dy_moments;
  const TensorMoments* w_moments;  // null: a cast
  const float* scale_in;
  float* scale_out;
};

// Decides by all that a rule may look at. One block.
// Before the products of the backward pass, in the stream: alpha lies in backend memory when they
// need it.
struct DecideKernel {
  static constexpr int kThreads = 256, kPhases = 2;
  struct Shared {
    double low[kThreads], high[kThreads];  // of products; 0: none
    std::uint32_t largest[kThreads];       // of |dy|, as bits
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const scaling::Needs needs = scaling::NeedsOf(*by.scaler);
    if constexpr (kPhase == 0)
      if (needs.products) TakeProducts(at.thread, shared);
    if constexpr (kPhase == 1) {
      if (at.thread != 0) return;
      scaling::Observation seen;
      if (needs.logs) seen.log_mean = logs->mean, seen.log_std = logs->deviation;
      if (needs.products) JoinProducts(shared, seen);
      by.Decide(seen);
    }
  }

  DecideByMoments by;
  const LogSums* logs;
  ChannelMagnitudes dy, w;
  std::int64_t channels;

 private:
  static ADA_HOST_DEVICE double Smallest(std::uint32_t low) {
    return static_cast<double>(OfBits(~low + 1));
  }
  static ADA_HOST_DEVICE double Largest(std::uint32_t high) {
    return static_cast<double>(OfBits(high));
  }
  static ADA_HOST_DEVICE void Join(double low, double high, double& least, double& most) {
    if (low == 0) return;
    least = least == 0 || low < least ? low : least;
    most = most < high ? high : most;
  }
  // Leaves the channels as the next pass wants them.
  ADA_HOST_DEVICE void TakeProducts(int thread, Shared& shared) const {
    double low = 0, high = 0;
    std::uint32_t largest = 0;
    for (std::int64_t c = thread; c < channels; c += kThreads) {
      largest = dy.high[c] > largest ? dy.high[c] : largest;
      if (dy.high[c] != 0 && w.high[c] != 0)
        Join(Smallest(dy.low[c]) * Smallest(w.low[c]), Largest(dy.high[c]) * Largest(w.high[c]),
             low, high);
      dy.low[c] = dy.high[c] = w.low[c] = w.high[c] = 0;
    }
    shared.low[thread] = low, shared.high[thread] = high, shared.largest[thread] = largest;
  }
  ADA_HOST_DEVICE void JoinProducts(const Shared& shared, scaling::Observation& seen) const {
    std::uint32_t largest = 0;
    for (int k = 0; k < kThreads; ++k) {
      Join(shared.low[k], shared.high[k], seen.product_min, seen.product_max);
      largest = shared.largest[k] > largest ? shared.largest[k] : largest;
    }
    // As bits a NaN is the largest.
    if (largest >= kInfinityBits) seen.product_max = Largest(largest);
  }
};

}  // namespace ada::backend::cuda
