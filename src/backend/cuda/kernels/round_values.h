// out[i] = round(value(i)) for all values of a tensor, with its statistics: the kernel of every op
// whose output values can be computed one by one, and its plain case by eights.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "backend/cuda/kernels/rounding_stats.h"
#include "backend/cuda/kernels/tensor_span.h"

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
// OfVec4(i, shared, own) and One(i, shared, own), for values i .. i + 3 and for value i.
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
    if constexpr (GivesVec4<Value>::value) {
      x = value.OfVec4(i);
    } else {
      ADA_UNROLL
      for (int k = 0; k < 4; ++k) x.of[k] = value(i + k);
    }
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
    ADA_UNROLL
    for (int k = 0; k < 4; ++k) CountStored(this->how, shared, own, x.of[k]);
  }
  ADA_HOST_DEVICE void One(std::int64_t i, StatsShared<kLevel>& shared,
                           StatsOwn<kLevel>& own) const {
    CountStored(this->how, shared, own, Load(in, i));
  }

  TensorSpan in;
};

// --- By eights ---

// The plain case: values of 16 bits become values of the same 16 bits, rounded to nearest by the
// hardware's conversion, without a per-tensor scale; nothing is measured but the largest magnitude
// and moments. What is stored has the bits of the general kernel; the values of a thread are
// others, so sums may differ in their last bits. What a plain value holds besides:
//
//   struct Held ...;                          // what a thread reads once
//   struct Loaded ...;                        // of eight values
//   Held Hold(std::int64_t i) const;          // i: where one of the thread's eights begins
//   Loaded LoadVec8At(std::int64_t i) const;
//   template <StorageType kStorageType> Vec8 OfVec8(const Held&, const Loaded&) const;
//   bool IsPlain(Storage storage) const;      // all it reads is stored so, in vec8
template <class Value, class = void>
struct HasPlain : std::false_type {};
template <class Value>
struct HasPlain<Value, std::void_t<typename Value::Held>> : std::true_type {};

// What thread `at` of a kernel of FlatBlocks does, two loads ahead of what is done with them:
// use(i, load(i)) for its eights. 8 divides `values`.
inline constexpr std::int64_t kVec8Step = 8 * kStatsThreads;
ADA_HOST_DEVICE inline std::int64_t FirstVec8(const ThreadIndex& at, std::int64_t size) {
  return at.block * size + 8 * at.thread;
}
template <class LoadItem, class Use>
ADA_HOST_DEVICE void ForVec8(const ThreadIndex& at, std::int64_t values, std::int64_t size,
                             LoadItem&& load, Use&& use) {
  const std::int64_t begin = at.block * size;
  const std::int64_t end = begin + size < values ? begin + size : values;
  for (std::int64_t i = FirstVec8(at, size); i < end; i += 2 * kVec8Step) {
    const bool two = i + kVec8Step < end;
    const auto first = load(i), second = load(two ? i + kVec8Step : i);
    use(i, first);
    if (two) use(i + kVec8Step, second);
  }
}

namespace stat {

// As AddMoments; squares of fp16 values stay within fp32's range.
template <StorageType kStorageType>
ADA_HOST_DEVICE inline void AddVec8(StatsOwn<StatsLevel::kMoments>& own, const Vec8& stored) {
  float high = stored.of[0], low = stored.of[0];
  std::uint32_t least = 0xffffffffu;
  for (const float x : stored.of) {
    high = fmaxf(high, x), low = fminf(low, x);
    least = Combine(kLeast, least, MagnitudeBits(x) - 1);
    if constexpr (kStorageType == StorageType::kF16) {
      own.narrow_sum += x, own.narrow_square += x * x;
    } else {
      const double d = x;
      own.sums[kStored] += d, own.sums[kStoredSquare] += d * d;
    }
  }
  own.ints[kLeast] = Combine(kLeast, own.ints[kLeast], least);
  // Zeros have no sign. If there is a NaN, the sums show it, and these values are not used.
  own.ints[kHigh] = Combine(kHigh, own.ints[kHigh], Ordered(high + 0.0f));
  own.ints[kLow] = Combine(kLow, own.ints[kLow], Ordered(low + 0.0f));
}

}  // namespace stat

// The hardware's conversion rounds to nearest even, as the general kernel does; statistics are of
// the values before it.
template <StorageType kStorageType, StatsLevel kLevel>
ADA_HOST_DEVICE inline Vec8Codes RoundVec8(StatsOwn<kLevel>& own, const Vec8& x) {
  static_assert(kLevel <= StatsLevel::kMoments);
  const Vec8Codes codes = Narrowed<kStorageType>(x);
  if constexpr (kLevel >= StatsLevel::kLargest) {
    std::uint32_t largest = own.ints[stat::kMax];
    for (const float one : x.of) largest = stat::Combine(stat::kMax, largest, MagnitudeBits(one));
    own.ints[stat::kMax] = largest;
  }
  if constexpr (kLevel == StatsLevel::kMoments)
    stat::AddVec8<kStorageType>(own, Widened<kStorageType>(codes));
  return codes;
}

// Taken in place of RoundValuesKernel where the tensor, its rounding and the Value are plain
// (Value::IsPlain); ADA_CUDA_PLAIN=0 turns it off.
template <StorageType kStorageType, class Value, StatsLevel kLevel>
struct PlainValuesKernel {
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
      if (FirstVec8(at, size) >= values) return;
      const typename Value::Held held = value.Hold(FirstVec8(at, size));
      ForVec8(
          at, values, size, [&](std::int64_t i) { return value.LoadVec8At(i); },
          [&](std::int64_t i, const typename Value::Loaded& loaded) {
            const Vec8 x = value.template OfVec8<kStorageType>(held, loaded);
            StoreVec8(out, i, RoundVec8<kStorageType>(own.stats, x));
          });
    } else {
      GatherStats<kPhase - 2>(how, at, shared.stats, own.stats);
    }
  }

  Rounding how;
  std::int64_t values, size;  // of all, of a block
  Value value;
  TensorSpan out;
};

// The largest magnitude of values that are stored already.
// After a library has rounded: nothing else is wanted in a step without counts.
template <StorageType kStorageType>
struct LargestPlainKernel {
  static constexpr StatsLevel kLevel = StatsLevel::kLargest;
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
      std::uint32_t largest = 0;
      ForVec8(
          at, values, size, [&](std::int64_t i) { return LoadVec8(in, i); },
          [&](std::int64_t, const Vec8Codes& codes) { largest = JoinMagnitudes(largest, codes); });
      own.stats.ints[stat::kMax] = LargestBits<kStorageType>(largest);
    } else {
      GatherStats<kPhase - 2>(how, at, shared.stats, own.stats);
    }
  }

  Rounding how;
  std::int64_t values, size;  // of all, of a block
  TensorSpan in;
};

}  // namespace ada::backend::cuda
