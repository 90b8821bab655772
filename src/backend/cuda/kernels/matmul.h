// What surrounds the products of a layer: the values that are rounded, weights and their gradients
// between PyTorch's order and that of the products, the low-precision copies of all layers'
// weights.
#pragma once
#include <cstdint>
#include <cstring>

#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/strip_sums.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// y before rounding: the sum plus its channel's bias.
// The bias is added in fp32, before the one rounding.
struct BiasedSum {
  const float *sum, *bias;
  std::int64_t channels;
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return sum[i] + bias[ChannelOf(i, static_cast<std::uint32_t>(channels))];
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    Vec4 x = reinterpret_cast<const Vec4*>(sum)[i / 4];
    std::int64_t c = ChannelOf(i, static_cast<std::uint32_t>(channels));
    for (float& value : x.of) {
      value = value + bias[c];
      c = c + 1 < channels ? c + 1 : 0;
    }
    return x;
  }
};

// dx before rounding: the sum times alpha (null: 1).
struct ScaledSum {
  const float *sum, *alpha;
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return sum[i] * (alpha == nullptr ? 1.0f : *alpha);
  }
  ADA_HOST_DEVICE Vec4 OfVec4(std::int64_t i) const {
    const float factor = alpha == nullptr ? 1.0f : *alpha;
    Vec4 x = reinterpret_cast<const Vec4*>(sum)[i / 4];
    for (float& value : x.of) value = value * factor;
    return x;
  }
};

// Values of a tensor, unchanged.
struct StoredValues {
  TensorSpan in;
  ADA_HOST_DEVICE float operator()(std::int64_t i) const { return Load(in, i); }
};
// Values 4 i .. 4 i + 3 of n in fp32.
struct WidenVec4 {
  TensorSpan in, out;
  std::int64_t n;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    if (4 * i + 4 <= n) return StoreVec4(out, 4 * i, LoadVec4(in, 4 * i));
    for (std::int64_t k = 4 * i; k < n; ++k) StoreExact(out, k, Load(in, k));
  }
};

// A copy of pixels of `channels` values in `row` values each, of the same storage: zeros after. For
// all pixels. cuDNN has no plan for the weight gradient of very few channels.
struct PadChannels {
  TensorSpan in, out;
  std::int64_t channels, row;
  ADA_HOST_DEVICE void operator()(std::int64_t pixel) const {
    for (std::int64_t c = 0; c < row; ++c)
      StoreExact(out, pixel * row + c, c < channels ? Load(in, pixel * channels + c) : 0.0f);
  }
};

// The authors' program: out = round(alpha * dy), where alpha is not 1.
struct ScaleGradient {
  TensorSpan dy, out;
  const float* alpha;
  NumberGrid grid;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const float x = Load(dy, i);
    StoreExact(out, i, *alpha == 1 ? x : RoundToGrid(grid, x * *alpha));
  }
};

// Weights are stored as [out, c, taps] (PyTorch) or [out, taps, c] (packed, for matmuls); taps = kh
// * kw. If a matmul needs padded channels, [out, taps, row] has the channels and then unused
// values. The packed order is that of NHWC convolutions: a tap's channels are adjacent.
struct WeightOrder {
  std::int64_t channels, taps, row = channels;
  // The index in one order of a value of the other order.
  ADA_HOST_DEVICE std::int64_t PlainOf(std::int64_t packed) const {
    const std::int64_t c = packed % channels, rest = packed / channels;
    return (rest / taps * channels + c) * taps + rest % taps;
  }
  // Works on numbers below 2^32, as values of weights have, which a device divides faster.
  ADA_HOST_DEVICE std::int64_t PackedOf(std::uint32_t plain) const {
    const auto of = static_cast<std::uint32_t>(taps), c = static_cast<std::uint32_t>(channels);
    const std::uint32_t tap = plain % of, rest = plain / of;
    return (std::int64_t{rest / c} * taps + tap) * row + rest % c;
  }
};

struct PackWeights {
  const float* plain;
  TensorSpan packed;
  WeightOrder order;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    StoreExact(packed, i, plain[order.PlainOf(i)]);
  }
};

// dw = gradient / S in PyTorch's order, added to what dw holds with `add`. The authors' program
// rounds the gradient before it is divided.
// A Value of RoundingStats::Round, or stored as it is: dw carries no S from here on.
struct UnscaledGradient {
  const float* sum;
  WeightOrder order;
  const float* scale;
  const float* dw;
  bool add, round_first;
  NumberGrid grid;
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    float x = sum[order.PackedOf(static_cast<std::uint32_t>(i))];
    if (round_first) x = RoundToGrid(grid, x);
    x = x / *scale;
    return add ? dw[i] + x : x;
  }
};

// The same where dw is a part of a sum over processes: stored as it is.
struct StoreUnscaled {
  UnscaledGradient gradient;
  float* dw;
  ADA_HOST_DEVICE void operator()(std::int64_t i) const { dw[i] = gradient(i); }
};
// A sum over processes, which carries no S any more, rounded as it carried it: the authors' way.
struct SumAsReference {
  const float *values, *scale;
  NumberGrid grid;
  ADA_HOST_DEVICE float operator()(std::int64_t i) const {
    return RoundToGrid(grid, values[i] * *scale) * (1 / *scale);
  }
};
// db as a sum that is rounded before and after the division.
struct RoundBiasSum {
  SumAsReference sum;
  float* db;
  ADA_HOST_DEVICE void operator()(std::int64_t c) const { db[c] = RoundToGrid(sum.grid, sum(c)); }
};

// Rows of a matrix [rows, channels] in runs of `span`: sums of run i / channels of channel
// i % channels.
// fp32 within a run, double over runs (UnscaledBias), as strips on a CPU.
struct SumRuns {
  TensorSpan in;
  std::int64_t rows, channels, span;
  float* runs;  // [number of runs, channels]
  ADA_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t c = i % channels, begin = i / channels * span;
    const std::int64_t end = begin + span < rows ? begin + span : rows;
    runs[i] = SumOfStored(in, begin, end, [&](std::int64_t row) { return row * channels + c; });
  }
};

// db of channel c, from the runs in their order. `reference`: rounded before and after.
struct UnscaledBias {
  const float* runs;
  std::int64_t count, channels;
  const float* scale;
  float* db;
  bool add, reference;
  NumberGrid grid;
  ADA_HOST_DEVICE void operator()(std::int64_t c) const {
    float x = static_cast<float>(SumOfStrips(runs, 0, count, channels, c));
    if (reference) x = RoundToGrid(grid, x);
    x = x / *scale;
    if (add) x = db[c] + x;
    db[c] = reference ? RoundToGrid(grid, x) : x;
  }
};

// --- Copies of weights, all layers by one launch ---

// Values are rounded and measured as by RoundValuesKernel, each tensor in blocks of its own, and
// packed on the way. One tensor, in backend memory. Made once for each layer and uploaded as a
// table; `how` points to statistics of the layer.
struct WeightTensor {
  static constexpr int kMostCopies = 3;  // one a storage

  TensorSpan master;         // fp32, in PyTorch's order
  float* rounded = nullptr;  // the same; null: nothing is rounded
  Rounding how;              // without totals nothing is measured
  std::int64_t values = 0, size = 0;
  int first_block = 0, blocks = 0;  // of the launch
  WeightOrder order{};
  TensorSpan copies[kMostCopies];  // packed
  int copy_count = 0;

  // x: value i of the rounded tensor.
  ADA_HOST_DEVICE void Store(std::int64_t i, float x) const {
    if (rounded != nullptr) rounded[i] = x;
    if (copy_count == 0) return;
    const std::int64_t to = order.PackedOf(static_cast<std::uint32_t>(i));
    for (int k = 0; k < copy_count; ++k) StoreExact(copies[k], to, x);
  }
};

// Layers are many and mostly small: one launch for all of them keeps the device busy. Phase 0
// copies the block's row of the table into shared memory.
template <StatsLevel kLevel>
struct RefreshWeightsKernel {
  static constexpr int kThreads = kStatsThreads, kPhases = 3 + StatsPhases(kLevel);
  static constexpr int kWord = 4, kWords = sizeof(WeightTensor) / kWord;
  static_assert(sizeof(WeightTensor) % kWord == 0);
  struct Shared {
    // Read once: after every store the table would have to be read again.
    alignas(WeightTensor) unsigned char tensor[sizeof(WeightTensor)];
    StatsShared<kLevel> stats;
  };
  struct Own {
    StatsOwn<kLevel> stats;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      const WeightTensor* from = tensors + tensor_of_block[at.block];
      for (int k = at.thread * kWord; k < kWords * kWord; k += kThreads * kWord)
        std::memcpy(shared.tensor + k, reinterpret_cast<const unsigned char*>(from) + k, kWord);
      return;
    }
    const WeightTensor& of = *reinterpret_cast<const WeightTensor*>(shared.tensor);
    // Statistics of a tensor are gathered over its own blocks, as if they were a launch of their
    // own.
    const ThreadIndex within{at.block - of.first_block, at.thread, of.blocks};
    if constexpr (kPhase == 1) {
      BeginStats(of.how, within, shared.stats, own.stats);
    } else if constexpr (kPhase == 2) {
      ForFlatBlock(
          within, of.values, of.size,
          [&](std::int64_t i) {
            const Vec4 x = LoadVec4(of.master, i);
            const Vec4 r = RoundAndCountVec4(of.how, shared.stats, own.stats, x, i);
            for (int k = 0; k < 4; ++k) of.Store(i + k, r.of[k]);
          },
          [&](std::int64_t i) {
            of.Store(i, RoundAndCount(of.how, shared.stats, own.stats, Load(of.master, i), i));
          });
    } else {
      if (of.how.totals != nullptr)
        GatherStats<kPhase - 3>(of.how, within, shared.stats, own.stats);
    }
  }

  const WeightTensor* tensors = nullptr;
  const std::int32_t* tensor_of_block = nullptr;
};

}  // namespace ada::backend::cuda
