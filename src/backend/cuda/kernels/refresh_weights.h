// The low-precision copies of all layers' weights by one launch: values are rounded and measured as
// by RoundValuesKernel (round_values.h), each tensor in blocks of its own, and packed on the way.
#pragma once
#include <cstdint>
#include <cstring>

#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/round_values.h"

namespace ada::backend::cuda {

// One tensor, in backend memory.
// Made once for each layer and uploaded as a table; `how` points to statistics of the layer.
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
