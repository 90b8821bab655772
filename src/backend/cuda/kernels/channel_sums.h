// Sums over pixels by channel, for batch norm: moments of x, and sums of dy and of dy times xhat.
#pragma once
#include <algorithm>
#include <cstdint>

#include "backend/cuda/kernels/tensor_span.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "number/number_grid.h"
#include "number/stats.h"

namespace ada::backend::cuda {

// --- The deferred amax ---

// The deferred amax: the largest magnitude of a tensor's stored values, taken by a kernel that
// reads all of them for another purpose (backend/decisions.h, DefersAmax).
ADA_HOST_DEVICE inline std::uint32_t Larger(std::uint32_t a, std::uint32_t b) {
  return a > b ? a : b;
}

// A member of kernels that read all values of a tensor anyway: the moments' and the gradient sums'
// kernels add, the channels' kernel after them writes.
struct DeferredAmax {
  std::uint32_t* bits = nullptr;  // of a magnitude; 0 at the start of a pass. Null: not needed
  TensorStats* stats = nullptr;
  std::int64_t values = 0;  // of the pass

  // Adds what a thread has seen. Few threads see a value that is larger than all before.
  ADA_HOST_DEVICE void Add(std::uint32_t magnitude) const {
    if (bits != nullptr && magnitude > *static_cast<const volatile std::uint32_t*>(bits))
      AtomicMax(bits, magnitude);
  }
  // One thread calls this when all have added theirs: it writes the statistics as
  // StatsLevel::kLargest leaves them.
  ADA_HOST_DEVICE void Write() const {
    if (bits == nullptr) return;
    TensorStats all;
    all.numel = values, all.max_abs = OfBits(*bits);
    *stats = all;
    *bits = 0;
  }
};

// --- Sums by channel ---

// Sums over pixels, channel by channel: fp32 within a piece of a tensor, double over pieces and
// parts (batch_norm.h). Parts are runs of pixels of all images, cut by the shape alone, each a
// block's, and pieces runs of a part; within one the order is the CPU's: chains of every kChains-th
// pixel, added up in pairs.
//
//              pixels of a piece          cells: width channels side by side, kChains chains, and
//    c0 c1 ..  |0 1 2 3 0 1 2 3 ... |     all pieces of the part
// Many parts give work to many blocks, but few blocks add them up. The number depends only on the
// shape, so that parts, and therefore sums, are the same on every device.
struct PixelParts {
  // So few pixels are one part and one piece; else pieces have 16 where that makes few enough
  // parts.
  static constexpr std::int64_t kAlone = 128, kMostParts = 1024, kPiecePixels = 16;
  // The cells of a block, and the channels that it has at the most.
  static constexpr int kCells = 1024, kChannels = 64;

  std::int64_t channels = 0, part_pixels = kAlone;
  bool alone = true;

  PixelParts() = default;
  // pixels: of all images of the tensor.
  PixelParts(std::int64_t channel_count, std::int64_t pixels)
      : channels(channel_count), alone(pixels <= kAlone) {
    if (alone) return;
    const std::int64_t least = (pixels + kMostParts - 1) / kMostParts;
    part_pixels = std::max(Pieces(4) * kPiecePixels, (least + 7) / 8 * 8);
  }
  // The number of pieces of a part, if a piece is summed in this many chains.
  std::int64_t Pieces(int chains) const {
    const std::int64_t cells = chains * std::min<std::int64_t>(channels, kChannels);
    return alone ? 1 : std::min<std::int64_t>(64 / chains, kCells / cells);
  }
  // Parts that the first `pixels` pixels reach into.
  ADA_HOST_DEVICE std::int64_t Count(std::int64_t pixels) const {
    return (pixels + part_pixels - 1) / part_pixels;
  }
  ADA_HOST_DEVICE std::int64_t Begin(std::int64_t part) const { return part * part_pixels; }
  // The number of the first `pixels` pixels that belong to `part`.
  ADA_HOST_DEVICE std::int64_t Pixels(std::int64_t part, std::int64_t pixels) const {
    const std::int64_t rest = pixels - Begin(part);
    return rest < part_pixels ? rest : part_pixels;
  }
};

// Who sums what: a cell is one chain of kEach channels of one piece; kEach divides the channels.
// A block has one part and up to kChannels channels. Cells are numbered by piece, chain and
// channel, channels fastest, so that neighboring threads read neighboring channels.
template <int kChains, int kEach = 1>
struct ChannelThreads {
  static constexpr int kChannels = PixelParts::kChannels;
  static constexpr int kThreads = kEach == 1 ? 256 : PixelParts::kCells / kEach;
  // The cells of all threads; with several channels a cell each thread has one at the most.
  static constexpr int kCells = PixelParts::kCells / kEach;

  PixelParts cut;
  std::int64_t pixels = 0;  // of all images of the call
  int pieces = 1, piece_pixels = 0;

  ChannelThreads() = default;
  ChannelThreads(const PixelParts& parts, std::int64_t all_pixels)
      : cut(parts), pixels(all_pixels), pieces(static_cast<int>(parts.Pieces(kChains))) {
    const std::int64_t even = (parts.part_pixels + pieces - 1) / pieces;
    piece_pixels = static_cast<int>((even + kChains - 1) / kChains) * kChains;
  }

  ADA_HOST_DEVICE int columns() const {
    return static_cast<int>((cut.channels + kChannels - 1) / kChannels);
  }
  int Blocks() const { return static_cast<int>(cut.Count(pixels)) * columns(); }
  ADA_HOST_DEVICE int width() const {  // cells side by side
    return (cut.channels < kChannels ? static_cast<int>(cut.channels) : kChannels) / kEach;
  }

  struct Work {
    std::int64_t part, channel;  // the first of kEach
    std::int64_t first, count;   // pixels of the piece
    int piece, chain;
  };
  // do(cell, work) for the cells of a thread that have pixels.
  template <class Do>
  ADA_HOST_DEVICE void ForCells(const ThreadIndex& at, Do&& act) const {
    const int wide = width(), cells = pieces * kChains * wide;
    for (int cell = at.thread; cell < cells; cell += kThreads) {
      const int row = cell / wide;
      Work work;
      work.part = at.block / columns();
      work.channel = at.block % columns() * kChannels + cell % wide * kEach;
      work.chain = row % kChains, work.piece = row / kChains;
      const std::int64_t before = std::int64_t{work.piece} * piece_pixels;
      const std::int64_t rest = cut.Pixels(work.part, pixels) - before;
      work.first = cut.Begin(work.part) + before;
      work.count = rest < piece_pixels ? rest : piece_pixels;
      if (work.count > 0 && work.channel < cut.channels) act(cell, work);
    }
  }
  // do(channel of the block, channel, part) for the channels of a thread.
  template <class Do>
  ADA_HOST_DEVICE void ForChannels(const ThreadIndex& at, Do&& act) const {
    const std::int64_t begin = std::int64_t{at.block % columns()} * kChannels;
    for (int c = at.thread; c < width() * kEach && begin + c < cut.channels; c += kThreads)
      act(c, begin + c, std::int64_t{at.block / columns()});
  }
  // The cell of chain 0 of the first piece, for a channel of the block.
  ADA_HOST_DEVICE static int FirstCell(int c) { return c / kEach; }
  // add(number of pixels, the cell of its chain 0) for the pieces of a part, in their order; c: a
  // channel of the block.
  template <class Add>
  ADA_HOST_DEVICE void ForPieces(std::int64_t part, int c, Add&& add) const {
    const std::int64_t all = cut.Pixels(part, pixels);
    for (int piece = 0; piece < pieces; ++piece) {
      const std::int64_t rest = all - std::int64_t{piece} * piece_pixels;
      if (rest <= 0) return;
      add(rest < piece_pixels ? rest : piece_pixels, piece * kChains * width() + FirstCell(c));
    }
  }
};

// Mean and sum of squared deviations of a part, from those of its pieces.
// moments(cell): {mean, m2} of a piece.
struct MeanAndSquares {
  float mean, m2;
};
// Chan's formula for several groups at once: the mean of all first, then deviations from it.
template <class Threads, class MomentsOf>
ADA_HOST_DEVICE MeanAndSquares JoinPieces(const Threads& threads, std::int64_t part, int c,
                                          MomentsOf&& moments) {
  if (threads.pieces == 1) return moments(threads.FirstCell(c));
  double count = 0, sum = 0, m2 = 0;
  threads.ForPieces(part, c, [&](std::int64_t pixels, int cell) {
    const auto n = static_cast<double>(pixels);
    count += n, sum += n * static_cast<double>(moments(cell).mean);
  });
  const double mean = sum / count;
  threads.ForPieces(part, c, [&](std::int64_t pixels, int cell) {
    const MeanAndSquares of = moments(cell);
    const double d = static_cast<double>(of.mean) - mean;
    m2 += static_cast<double>(of.m2) + static_cast<double>(pixels) * d * d;
  });
  return {static_cast<float>(mean), static_cast<float>(m2)};
}

// add(p, load(p)) for the pixels of one chain: every kChains-th, and after the last whole round
// those that are left for chain 0.
template <int kChains, int kAhead = 8, class LoadPixel, class AddPixel>
ADA_HOST_DEVICE void ForChain(int chain, std::int64_t pixels, LoadPixel&& load, AddPixel&& add) {
  const std::int64_t whole = pixels / kChains * kChains;
  ForEvery<kAhead>(chain, whole, kChains, load, add);
  if (chain == 0) ForEvery<1>(whole, pixels, 1, load, add);
}

// The sum over the pieces of a part of what they have in the two chains of a cell.
template <class Threads>
ADA_HOST_DEVICE float SumOfPieces(const Threads& threads, std::int64_t part, int c,
                                  const float* cells) {
  const int step = threads.width();
  if (threads.pieces == 1) return cells[threads.FirstCell(c)] + cells[threads.FirstCell(c) + step];
  double sum = 0;
  threads.ForPieces(part, c, [&](std::int64_t, int cell) {
    sum += static_cast<double>(cells[cell] + cells[cell + step]);
  });
  return static_cast<float>(sum);
}

// Mean and sum of squared deviations of a piece from its sums in four chains, `step` apart, of
// deviations from `origin`.
ADA_HOST_DEVICE inline MeanAndSquares OfChains(const float* a, const float* b, int step,
                                               float origin, std::int64_t count) {
  const float s = (a[0] + a[step]) + (a[2 * step] + a[3 * step]);
  const float q = (b[0] + b[step]) + (b[2 * step] + b[3 * step]);
  const float shift = s / static_cast<float>(count), rest = q - s * shift;
  return {origin + shift, (rest > 0 ? rest : 0.0f) + (q - q)};  // a NaN stays
}

// Mean and sum of squared deviations of each part's channels. Deviations from a piece's first
// pixel keep the sums small.
// Phase 0 sums chains, phase 1 makes moments of the chains of a piece, phase 2 joins pieces. A
// part's results go to backend memory, where BatchStatistics reads them.
template <StorageType kStorageType>
struct ChannelMomentsKernel {
  static constexpr int kChains = 4;
  using Threads = ChannelThreads<kChains>;
  static constexpr int kThreads = Threads::kThreads, kPhases = 3;
  struct Shared {
    float sum[Threads::kCells], square[Threads::kCells];  // of cells; in chain 0's, of pieces
  };
  struct Own {};

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0)
      threads.ForCells(at, [&](int cell, const auto& work) { Sum(cell, work, shared); });
    if constexpr (kPhase == 1)
      threads.ForCells(at, [&](int cell, const auto& work) {
        if (work.chain == 0) Join(cell, work, shared);
      });
    if constexpr (kPhase == 2)
      threads.ForChannels(at, [&](int c, std::int64_t channel, std::int64_t part) {
        const MeanAndSquares of = JoinPieces(threads, part, c, [&](int cell) {
          return MeanAndSquares{shared.sum[cell], shared.square[cell]};
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
  ADA_HOST_DEVICE void Sum(int cell, const typename Threads::Work& work, Shared& shared) const {
    const std::int64_t channels = threads.cut.channels;
    const std::int64_t first = work.first * channels + work.channel;
    const float origin = LoadAs<kStorageType>(x, first);
    float sum = 0, square = 0;
    std::uint32_t largest = 0;
    ForChain<kChains>(
        work.chain, work.count,
        [&](std::int64_t p) { return LoadAs<kStorageType>(x, first + p * channels); },
        [&](std::int64_t, float value) {
          const float d = value - origin;
          sum += d, square += d * d;
          largest = Larger(largest, MagnitudeBits(value));
        });
    note.Add(largest);
    shared.sum[cell] = sum, shared.square[cell] = square;
  }
  ADA_HOST_DEVICE void Join(int cell, const typename Threads::Work& work, Shared& shared) const {
    const float origin = LoadAs<kStorageType>(x, work.first * threads.cut.channels + work.channel);
    const MeanAndSquares of =
        OfChains(shared.sum + cell, shared.square + cell, threads.width(), origin, work.count);
    shared.sum[cell] = of.mean, shared.square[cell] = of.m2;
  }
};

// Sums of dy and of dy * xhat of each part's channels; with `out`, dy is masked in place first.
// Masking in place here saves the kernel that computes dx from reading `out`.
template <StorageType kStorageType>
struct GradientSumsKernel {
  static constexpr int kChains = 2;
  using Threads = ChannelThreads<kChains>;
  static constexpr int kThreads = Threads::kThreads, kPhases = 2;
  struct Shared {
    float dy[Threads::kCells], dy_xhat[Threads::kCells];
  };
  struct Own {};
  struct Pixel {
    float x, dy;
    bool passes;
  };

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0)
      threads.ForCells(at, [&](int cell, const auto& work) { Sum(cell, work, shared); });
    if constexpr (kPhase == 1)
      threads.ForChannels(at, [&](int c, std::int64_t channel, std::int64_t part) {
        const std::int64_t to = part * threads.cut.channels + channel;
        sum_dy[to] = SumOfPieces(threads, part, c, shared.dy);
        sum_dy_xhat[to] = SumOfPieces(threads, part, c, shared.dy_xhat);
      });
  }

  Threads threads;
  TensorSpan x, dy, out;
  const float *mean = nullptr, *inverse = nullptr;  // [channels]
  float *sum_dy = nullptr, *sum_dy_xhat = nullptr;  // [parts, channels]
  DeferredAmax note;                                // of dy, before it is masked

 private:
  ADA_HOST_DEVICE void Sum(int cell, const typename Threads::Work& work, Shared& shared) const {
    const std::int64_t channels = threads.cut.channels;
    const std::int64_t first = work.first * channels + work.channel;
    const float center = mean[work.channel], factor = inverse[work.channel];
    float sum = 0, product = 0;
    std::uint32_t largest = 0;
    ForChain<kChains>(
        work.chain, work.count, [&](std::int64_t p) { return LoadPixel(first + p * channels); },
        [&](std::int64_t p, const Pixel& pixel) {
          if (!pixel.passes) StoreExact(dy, first + p * channels, 0.0f);
          const float g = pixel.passes ? pixel.dy : 0.0f;
          sum += g, product += g * ((pixel.x - center) * factor);
          largest = Larger(largest, MagnitudeBits(pixel.dy));
        });
    note.Add(largest);
    shared.dy[cell] = sum, shared.dy_xhat[cell] = product;
  }
  ADA_HOST_DEVICE Pixel LoadPixel(std::int64_t i) const {
    const bool passes = out.data == nullptr || LoadAs<kStorageType>(out, i) > 0;
    return {LoadAs<kStorageType>(x, i), LoadAs<kStorageType>(dy, i), passes};
  }
};

}  // namespace ada::backend::cuda
