// Sums over pixels, channel by channel: fp32 within a part of a tensor, double over the parts
// (batch_norm.h). Parts are runs of pixels of all images, cut by the shape alone; within one the
// order is the CPU's: chains of every kChains-th pixel, added up in pairs.
//
//              pixels of a part           threads: width channels side by side, kChains chains,
//    c0 c1 ..  |0 1 2 3 0 1 2 3 ... |     and as many parts as there is room for
#pragma once
#include <cstdint>

#include "backend/cuda/kernels/eights.h"
#include "backend/cuda/kernels/for_every.h"
#include "backend/cuda/kernels/largest_note.h"
#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

// Many parts make work for many threads; but they are added up by few.
struct PixelParts {
  static constexpr std::int64_t kLeastPixels = 128, kMostParts = 1024;

  std::int64_t channels = 0, part_pixels = kLeastPixels;

  PixelParts() = default;
  // pixels: of all images of the tensor.
  PixelParts(std::int64_t channel_count, std::int64_t pixels) : channels(channel_count) {
    const std::int64_t least = (pixels + kMostParts - 1) / kMostParts;
    if (least > kLeastPixels) part_pixels = (least + 7) / 8 * 8;
  }
  // Parts that the first `pixels` pixels reach into.
  ADA_HOST_DEVICE std::int64_t Count(std::int64_t pixels) const {
    return (pixels + part_pixels - 1) / part_pixels;
  }
  ADA_HOST_DEVICE std::int64_t Begin(std::int64_t part) const { return part * part_pixels; }
  // Of the first `pixels` pixels those that lie in `part`.
  ADA_HOST_DEVICE std::int64_t Pixels(std::int64_t part, std::int64_t pixels) const {
    const std::int64_t rest = pixels - Begin(part);
    return rest < part_pixels ? rest : part_pixels;
  }
};

// Who sums what: a thread one chain of kEach channels of one part, which divides the channels.
template <int kChains, int kEach = 1>
struct ChannelThreads {
  static constexpr int kChannels = 64, kMostWidth = kChannels / kEach;
  static constexpr int kThreads = kEach == 1 ? kChannels * kChains : 128;

  std::int64_t channels = 0, parts = 0;

  ADA_HOST_DEVICE int width() const {
    return channels < kChannels ? static_cast<int>(channels) / kEach : kMostWidth;
  }
  ADA_HOST_DEVICE int columns() const {
    return static_cast<int>((channels + kChannels - 1) / kChannels);
  }
  // Parts a block of threads.
  ADA_HOST_DEVICE int together() const { return kThreads / kChains / width(); }
  int Blocks() const { return static_cast<int>((parts + together() - 1) / together()) * columns(); }

  struct Work {
    std::int64_t part, channel;  // the first of kEach
    int chain;
    bool any;
  };
  ADA_HOST_DEVICE Work Of(const ThreadIndex& at) const {
    const int wide = width(), group = at.block / columns(), column = at.block % columns();
    const int row = at.thread / wide;
    Work work;
    work.channel = column * kChannels + at.thread % wide * kEach;
    work.chain = row % kChains;
    work.part = std::int64_t{group} * together() + row / kChains;
    work.any = row < together() * kChains && work.part < parts && work.channel < channels;
    return work;
  }
};

// add(p, load(p)) for the pixels of one chain: every kChains-th, and behind the last whole round
// those that are left for chain 0.
template <int kChains, int kAhead = 8, class LoadPixel, class AddPixel>
ADA_HOST_DEVICE void ForChain(int chain, std::int64_t pixels, LoadPixel&& load, AddPixel&& add) {
  const std::int64_t whole = pixels / kChains * kChains;
  ForEvery<kAhead>(chain, whole, kChains, load, add);
  if (chain == 0) ForEvery<1>(whole, pixels, 1, load, add);
}

// Mean and sum of squared deviations of each part's channels. Deviations from the part's first
// pixel keep the sums small.
template <Lies kLies>
struct ChannelMomentsKernel {
  static constexpr int kChains = 4;
  using Threads = ChannelThreads<kChains>;
  static constexpr int kThreads = Threads::kThreads, kPhases = 2;
  struct Shared {
    float sum[kThreads], square[kThreads];
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const typename Threads::Work work = threads.Of(at);
    if (!work.any) return;
    const std::int64_t first = cut.Begin(work.part) * cut.channels + work.channel;
    const std::int64_t count = cut.Pixels(work.part, pixels);
    const float origin = LoadAs<kLies>(x, first);
    if constexpr (kPhase == 0) {
      float sum = 0, square = 0;
      std::uint32_t largest = 0;
      ForChain<kChains>(
          work.chain, count,
          [&](std::int64_t p) { return LoadAs<kLies>(x, first + p * cut.channels); },
          [&](std::int64_t, float value) {
            const float d = value - origin;
            sum += d, square += d * d;
            largest = Larger(largest, MagnitudeBits(value));
          });
      note.Add(largest);
      shared.sum[at.thread] = sum, shared.square[at.thread] = square;
    } else if (work.chain == 0) {
      const int step = threads.width();
      const float *a = shared.sum + at.thread, *b = shared.square + at.thread;
      const float s = (a[0] + a[step]) + (a[2 * step] + a[3 * step]);
      const float q = (b[0] + b[step]) + (b[2 * step] + b[3 * step]);
      const float shift = s / static_cast<float>(count), rest = q - s * shift;
      const std::int64_t to = work.part * cut.channels + work.channel;
      mean[to] = origin + shift;
      m2[to] = (rest > 0 ? rest : 0.0f) + (q - q);  // a NaN stays
    }
  }

  Threads threads;
  PixelParts cut;
  std::int64_t pixels = 0;  // of all images of the call
  TensorSpan x;
  float *mean = nullptr, *m2 = nullptr;  // [parts, channels]
  LargestNote note;                      // of x
};

// Sums of dy and of dy * xhat of each part's channels; with `out`, dy is masked in place first.
template <Lies kLies>
struct GradientSumsKernel {
  static constexpr int kChains = 2;
  using Threads = ChannelThreads<kChains>;
  static constexpr int kThreads = Threads::kThreads, kPhases = 2;
  struct Shared {
    float dy[kThreads], dy_xhat[kThreads];
  };
  struct Own {};
  struct Pixel {
    float x, dy;
    bool passes;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const typename Threads::Work work = threads.Of(at);
    if (!work.any) return;
    if constexpr (kPhase == 0) {
      const std::int64_t first = cut.Begin(work.part) * cut.channels + work.channel;
      const float centre = mean[work.channel], factor = inverse[work.channel];
      float sum = 0, product = 0;
      std::uint32_t largest = 0;
      ForChain<kChains>(
          work.chain, cut.Pixels(work.part, pixels),
          [&](std::int64_t p) { return LoadPixel(first + p * cut.channels); },
          [&](std::int64_t p, const Pixel& pixel) {
            if (!pixel.passes) StoreExact(dy, first + p * cut.channels, 0.0f);
            const float g = pixel.passes ? pixel.dy : 0.0f;
            sum += g, product += g * ((pixel.x - centre) * factor);
            largest = Larger(largest, MagnitudeBits(pixel.dy));
          });
      note.Add(largest);
      shared.dy[at.thread] = sum, shared.dy_xhat[at.thread] = product;
    } else if (work.chain == 0) {
      const int other = at.thread + threads.width();
      const std::int64_t to = work.part * cut.channels + work.channel;
      sum_dy[to] = shared.dy[at.thread] + shared.dy[other];
      sum_dy_xhat[to] = shared.dy_xhat[at.thread] + shared.dy_xhat[other];
    }
  }
  ADA_HOST_DEVICE Pixel LoadPixel(std::int64_t i) const {
    const bool passes = out.data == nullptr || LoadAs<kLies>(out, i) > 0;
    return {LoadAs<kLies>(x, i), LoadAs<kLies>(dy, i), passes};
  }

  Threads threads;
  PixelParts cut;
  std::int64_t pixels = 0;
  TensorSpan x, dy, out;
  const float *mean = nullptr, *inverse = nullptr;  // [channels]
  float *sum_dy = nullptr, *sum_dy_xhat = nullptr;  // [parts, channels]
  LargestNote note;                                 // of dy, before it is masked
};

}  // namespace ada::backend::cuda
