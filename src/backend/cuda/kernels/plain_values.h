// The plain case of round_values.h, by eights: values of 16 bits become values of the same 16 bits,
// rounded to nearest by the hardware's conversion, without a per-tensor scale; nothing is measured
// but the largest magnitude and moments. What is stored has the bits of the general kernel; the
// values of a thread are others, so sums may differ in their last bits.
#pragma once
#include <cmath>
#include <cstdint>

#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/vec8.h"

namespace ada::backend::cuda {

// What a plain value holds besides what round_values.h asks for:
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
