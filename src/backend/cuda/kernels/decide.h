// A layer's decision, made where it is used: the extremes of the products that element_wise_range
// looks at, and the rule itself.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/logs.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "scaling/rules/rules.h"

namespace ada::backend::cuda {

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

// Decides alpha and writes the scale that dx will carry. One block.
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
    if constexpr (kPhase == 0)
      if (scaling::NeedsOf(*scaler).products) TakeProducts(at.thread, shared);
    if constexpr (kPhase == 1)
      if (at.thread == 0) Decide(scaling::NeedsOf(*scaler), shared);
  }

  scaling::LayerScaler* scaler;
  const TensorMoments* dy_moments;
  const TensorMoments* w_moments;  // null: a cast
  const LogSums* logs;
  ChannelMagnitudes dy, w;
  std::int64_t channels;
  const float* scale_in;
  float* scale_out;

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
  ADA_HOST_DEVICE void Decide(const scaling::Needs& needs, const Shared& shared) const {
    scaling::Observation seen;
    if (needs.moments) {
      seen.dy = *dy_moments;
      if (w_moments != nullptr) seen.w = *w_moments;
    }
    if (needs.logs) seen.log_mean = logs->mean, seen.log_std = logs->deviation;
    if (needs.products) JoinProducts(shared, seen);
    scaling::Decide(*scaler, seen, *scale_in);
    *scale_out = scaler->decision.scale_out;
  }
};

}  // namespace ada::backend::cuda
