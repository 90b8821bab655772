// out[i] = round(value(i)) for all values of a tensor, with its statistics: the kernel of every op
// whose output values can be computed one by one.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/rounding_stats.h"

namespace ada::backend::cuda {

// How a run of values is cut: each block has `size` of them, a multiple of 4, the last one fewer.
// Fixed by the number of values alone.
struct FlatBlocks {
  std::int64_t size = 0;
  int blocks = 0;
};
inline constexpr std::int64_t kMostFlatBlocks = 4096;         // enough for any device
inline constexpr std::int64_t kFlatUnit = 4 * kStatsThreads;  // a thread's values lie in fours
inline constexpr std::int64_t kLeastFlatSize = 2 * kFlatUnit;
inline FlatBlocks FlatBlocksOf(std::int64_t values) {
  const std::int64_t least = (values + kMostFlatBlocks - 1) / kMostFlatBlocks;
  FlatBlocks flat;
  flat.size = std::max(kLeastFlatSize, (least + kFlatUnit - 1) / kFlatUnit * kFlatUnit);
  flat.blocks = static_cast<int>((values + flat.size - 1) / flat.size);
  return flat;
}
// The largest number of blocks for any run of at most this many values: a smaller number of values
// may need more blocks, because those of larger runs are larger.
inline int MostFlatBlocksOf(std::int64_t values) {
  return static_cast<int>(
      std::min(kMostFlatBlocks, (values + kLeastFlatSize - 1) / kLeastFlatSize));
}

// What thread `at` of a kernel of FlatBlocks does: four(i) for values i .. i + 3 at a time, one(i)
// at the end, where fewer are left.
template <class OfVec4, class One>
ADA_HOST_DEVICE void ForFlatBlock(const ThreadIndex& at, std::int64_t values, std::int64_t size,
                                  OfVec4&& four, One&& one) {
  const std::int64_t begin = at.block * size;
  const std::int64_t end = begin + size < values ? begin + size : values;
  for (std::int64_t i = begin + 4 * at.thread; i < end; i += 4 * kStatsThreads) {
    if (i + 4 <= end) {
      four(i);
      continue;
    }
    for (std::int64_t k = i; k < end; ++k) one(k);
  }
}

// Whether a Value gives values i .. i + 3 (4 divides i) together: Vec4 OfVec4(i) const.
template <class Value, class = void>
struct GivesVec4 : std::false_type {};
template <class Value>
struct GivesVec4<Value, std::void_t<decltype(&Value::OfVec4)>> : std::true_type {};

// A kernel that takes statistics of a run of values, whatever it does with each: Kernel has
// Four(i, shared, own) and One(i, shared, own), for values i .. i + 3 and for value i.
// The frame of kernels over runs of values (CRTP): statistics begin, values pass, statistics are
// gathered.
template <class Kernel, StatsLevel kLevel>
struct FlatStatsKernel {
  static constexpr int kThreads = kStatsThreads, kPhases = 2 + StatsPhases(kLevel);
  struct Shared {
    StatsShared<kLevel> stats;
  };
  struct Own {
    StatsOwn<kLevel> stats;
  };
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase == 0) {
      BeginStats(how, at, shared.stats, own.stats);
    } else if constexpr (kPhase == 1) {
      const auto& kernel = static_cast<const Kernel&>(*this);
      ForFlatBlock(
          at, values, size, [&](std::int64_t i) { kernel.OfVec4(i, shared.stats, own.stats); },
          [&](std::int64_t i) { kernel.One(i, shared.stats, own.stats); });
    } else {
      GatherStats<kPhase - 2>(how, at, shared.stats, own.stats);
    }
  }

  Rounding how;
  std::int64_t values, size;  // of all, of a block
};

// Value: a struct of plain data; ADA_HOST_DEVICE float operator()(std::int64_t i) const.
template <class Value, StatsLevel kLevel>
struct RoundValuesKernel : FlatStatsKernel<RoundValuesKernel<Value, kLevel>, kLevel> {
  ADA_HOST_DEVICE void OfVec4(std::int64_t i, StatsShared<kLevel>& shared,
                              StatsOwn<kLevel>& own) const {
    Vec4 x;
    if constexpr (GivesVec4<Value>::value)
      x = value.OfVec4(i);
    else
      for (int k = 0; k < 4; ++k) x.of[k] = value(i + k);
    StoreVec4(out, i, RoundAndCountVec4(this->how, shared, own, x, i));
  }
  ADA_HOST_DEVICE void One(std::int64_t i, StatsShared<kLevel>& shared,
                           StatsOwn<kLevel>& own) const {
    StoreExact(out, i, RoundAndCount(this->how, shared, own, value(i), i));
  }

  Value value;
  TensorSpan out;
};

// The same of values that lie in `in` already rounded: only statistics.
// For tensors that were moved, or that a library has rounded, in a step that counts.
template <StatsLevel kLevel>
struct CountValuesKernel : FlatStatsKernel<CountValuesKernel<kLevel>, kLevel> {
  ADA_HOST_DEVICE void OfVec4(std::int64_t i, StatsShared<kLevel>& shared,
                              StatsOwn<kLevel>& own) const {
    const Vec4 x = LoadVec4(in, i);
    for (const float one : x.of) CountStored(this->how, shared, own, one);
  }
  ADA_HOST_DEVICE void One(std::int64_t i, StatsShared<kLevel>& shared,
                           StatsOwn<kLevel>& own) const {
    CountStored(this->how, shared, own, Load(in, i));
  }

  TensorSpan in;
};

}  // namespace ada::backend::cuda
