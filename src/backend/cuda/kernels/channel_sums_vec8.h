// Sums over pixels by channel where values are of 16 bits and 8 divides the channels: the bits of
// channel_sums.h, by threads that take eight channels, which they load at once.
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/channel_sums.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// Two sums a thread and channel, and what becomes of them over the chains of a part.
// By channel, then by thread: neighbors write to neighboring banks of shared memory.
template <int kThreads>
struct PairsOfSums {
  float first[8][kThreads], second[8][kThreads];

  ADA_HOST_DEVICE void Put(int thread, const Vec8& a, const Vec8& b) {
    for (int k = 0; k < 8; ++k) first[k][thread] = a.of[k], second[k][thread] = b.of[k];
  }
};

// ChannelMomentsKernel for the case that 8 divides the channels and x is 16-bit and aligned to 16
// bytes (HasVec8).
template <StorageType kStorageType>
struct Vec8MomentsKernel {
  static constexpr int kChains = 4;
  using Threads = ChannelThreads<kChains, 8>;
  static constexpr int kThreads = Threads::kThreads, kPhases = 3;
  static_assert(Threads::kCells == kThreads);
  struct Shared {
    PairsOfSums<kThreads> sums;  // of cells; in chain 0's, of pieces
  };
  struct Own {
    Vec8 origin;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    // Phase 0 sums each cell, 1 joins the chains of a piece, 2 the pieces of a part, in their
    // order.
    if constexpr (kPhase == 0)
      threads.ForCells(at, [&](int cell, const auto& work) { Sum(cell, work, shared, own); });
    if constexpr (kPhase == 1)
      threads.ForCells(at, [&](int cell, const auto& work) {
        if (work.chain == 0) Join(cell, work, shared, own);
      });
    if constexpr (kPhase == 2)
      threads.ForChannels(at, [&](int c, std::int64_t channel, std::int64_t part) {
        const MeanAndSquares of = JoinPieces(threads, part, c, [&](int cell) {
          return MeanAndSquares{shared.sums.first[c % 8][cell], shared.sums.second[c % 8][cell]};
        });
        const std::int64_t to = part * threads.cut.channels + channel;
        mean[to] = of.mean, m2[to] = of.m2;
      });
  }

  Threads threads;
  TensorSpan x;
  float *mean = nullptr, *m2 = nullptr;  // [parts, channels]
  DeferredAmax note;                     // of x

 private:
  // Deviations are taken from the piece's first pixel: where the mean is large, squares of the
  // values themselves would lose them.
  ADA_HOST_DEVICE void Sum(int cell, const typename Threads::Work& work, Shared& shared,
                           Own& own) const {
    const std::int64_t channels = threads.cut.channels;
    const std::int64_t first = work.first * channels + work.channel;
    own.origin = Widened<kStorageType>(LoadVec8(x, first));
    Vec8 sum{}, square{};
    std::uint32_t largest = 0;
    ForChain<kChains>(
        work.chain, work.count, [&](std::int64_t p) { return LoadVec8(x, first + p * channels); },
        [&](std::int64_t, const Vec8Codes& codes) {
          const Vec8 value = Widened<kStorageType>(codes);
          largest = JoinMagnitudes(largest, codes);
          for (int k = 0; k < 8; ++k) {
            const float d = value.of[k] - own.origin.of[k];
            sum.of[k] += d, square.of[k] += d * d;
          }
        });
    shared.sums.Put(cell, sum, square);
    // Largest magnitudes are collected on the way: all of the tensor passes through here.
    note.Add(LargestBits<kStorageType>(largest));
  }
  ADA_HOST_DEVICE void Join(int cell, const typename Threads::Work& work, Shared& shared,
                            const Own& own) const {
    for (int k = 0; k < 8; ++k) {
      const MeanAndSquares of = OfChains(shared.sums.first[k] + cell, shared.sums.second[k] + cell,
                                         threads.width(), own.origin.of[k], work.count);
      shared.sums.first[k][cell] = of.mean, shared.sums.second[k][cell] = of.m2;
    }
  }
};

// What the mask of dy at the relu after a batch norm is computed from. Where y is NaN nothing
// passes.
enum class Masks : std::uint8_t {
  kNone,    // all of it passes
  kOutput,  // what the op has stored; dy is masked in place
  kX,       // y, computed anew from x; dy stays, and its readers mask it themselves
};

// GradientSumsKernel.
// Under kX the mask is computed from x as the forward pass computed y: y is positive where it is
// larger than the largest number that rounds to zero.
template <StorageType kStorageType, Masks kMasks>
struct Vec8GradientsKernel {
  static constexpr int kChains = 2;
  using Threads = ChannelThreads<kChains, 8>;
  static constexpr int kThreads = Threads::kThreads, kPhases = 2;
  struct Shared {
    PairsOfSums<kThreads> sums;
  };
  struct Own {};
  struct Pixel {
    Vec8Codes x, dy, out;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0)
      threads.ForCells(at, [&](int cell, const auto& work) { Sum(work, cell, shared); });
    if constexpr (kPhase == 1)
      threads.ForChannels(at, [&](int c, std::int64_t channel, std::int64_t part) {
        const std::int64_t to = part * threads.cut.channels + channel;
        sum_dy[to] = SumOfPieces(threads, part, c, shared.sums.first[c % 8]);
        sum_dy_xhat[to] = SumOfPieces(threads, part, c, shared.sums.second[c % 8]);
      });
  }
  ADA_HOST_DEVICE void Sum(const typename Threads::Work& work, int cell, Shared& shared) const {
    const std::int64_t channels = threads.cut.channels;
    const std::int64_t first = work.first * channels + work.channel;
    const auto c = static_cast<std::uint32_t>(work.channel);
    const Vec8 center = Vec8Channels(mean, c), by = Vec8Channels(inverse, c);
    Vec8 slope{}, shift{};
    if constexpr (kMasks == Masks::kX)
      slope = Vec8Channels(factor, c), shift = Vec8Channels(beta, c);
    Vec8 sum{}, product{};
    std::uint32_t largest = 0;
    ForChain<kChains, 4>(
        work.chain, work.count, [&](std::int64_t p) { return LoadPixel(first + p * channels); },
        [&](std::int64_t p, const Pixel& pixel) {
          const Vec8 at = Widened<kStorageType>(pixel.x);
          Vec8 g = Widened<kStorageType>(pixel.dy);
          largest = JoinMagnitudes(largest, pixel.dy);
          if constexpr (kMasks == Masks::kOutput) MaskInPlace(pixel, first + p * channels, g);
          for (int k = 0; k < 8; ++k) {
            const float deviation = at.of[k] - center.of[k];
            if constexpr (kMasks == Masks::kX)
              if (!(deviation * slope.of[k] + shift.of[k] > largest_zero)) g.of[k] = 0;
            sum.of[k] += g.of[k], product.of[k] += g.of[k] * (deviation * by.of[k]);
          }
        });
    shared.sums.Put(cell, sum, product);
    note.Add(LargestBits<kStorageType>(largest));
  }
  ADA_HOST_DEVICE Pixel LoadPixel(std::int64_t i) const {
    Pixel pixel{LoadVec8(x, i), LoadVec8(dy, i), {}};
    if constexpr (kMasks == Masks::kOutput) pixel.out = LoadVec8(out, i);
    return pixel;
  }
  // What does not pass becomes +0; eights that pass as a whole are not written again.
  ADA_HOST_DEVICE void MaskInPlace(const Pixel& pixel, std::int64_t i, Vec8& g) const {
    const Vec8 y = Widened<kStorageType>(pixel.out);
    Vec8Codes kept = pixel.dy;
    bool all = true;
    for (int k = 0; k < 8; ++k) {
      if (y.of[k] > 0) continue;
      g.of[k] = 0, all = false;
      kept.pair[k / 2] &= k % 2 == 0 ? 0xffff0000u : 0xffffu;
    }
    if (!all) StoreVec8(dy, i, kept);
  }

  Threads threads;
  TensorSpan x, dy, out;  // out: kOutput
  const float *mean = nullptr,
              *inverse = nullptr;                   // [channels], as are the next
  const float *factor = nullptr, *beta = nullptr;   // kX
  float largest_zero = 0;                           // kX: of y's rounding
  float *sum_dy = nullptr, *sum_dy_xhat = nullptr;  // [parts, channels]
  DeferredAmax note;                                // of dy, before it is masked
};

}  // namespace ada::backend::cuda
