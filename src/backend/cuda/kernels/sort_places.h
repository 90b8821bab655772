// Places of a batch by their token, and places of one token in their order: whole numbers alone, so
// that every run gives the same. Keys of 8 bits at a time, from the lowest up; each time places are
// counted by block and key, the counts are added up, and each place goes after those before it.
#pragma once
#include <cstdint>

#include "backend/cuda/launch.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// The data that are sorted: tokens, with the position of each.
struct SortedPlaces {
  std::int32_t *tokens, *places;
};

// What both kernels of a turn share: `count` items, a thread each.
// One turn sorts by eight bits: count keys, sum the counts, move. It is stable, so that turns from
// the lowest bits up sort whole tokens.
struct SortTurn {
  static constexpr int kThreads = 256, kKeys = 256, kBits = 8;
  static int Blocks(std::int64_t count) {
    return static_cast<int>((count + kThreads - 1) / kThreads);
  }
  ADA_HOST_DEVICE int KeyOf(std::int64_t i) const { return tokens[i] >> shift & (kKeys - 1); }
  // How many items of a block have a key; later, where the first of them goes.
  ADA_HOST_DEVICE std::uint32_t& Of(int key, const ThreadIndex& at) const {
    return numbers[static_cast<std::int64_t>(key) * at.blocks + at.block];
  }

  const std::int32_t* tokens;
  std::int64_t count;
  int shift;
  std::uint32_t* numbers;  // [kKeys, blocks]
};

struct CountKeysKernel : SortTurn {
  static constexpr int kPhases = 3;
  struct Shared {
    std::uint32_t counts[kKeys];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    if constexpr (kPhase == 0) shared.counts[at.thread] = 0;
    if constexpr (kPhase == 1) {
      const std::int64_t i = std::int64_t{at.block} * kThreads + at.thread;
      if (i < count) AtomicAdd(&shared.counts[KeyOf(i)], 1u);
    }
    if constexpr (kPhase == 2) Of(at.thread, at) = shared.counts[at.thread];
  }
};

// Each number becomes the sum of those before it. One block.
// Numbers are in the order of keys, and of blocks within a key: their sums are where each block's
// items of a key go.
struct SumsBeforeKernel {
  static constexpr int kThreads = 1024, kPhases = 3;
  struct Shared {
    std::uint32_t sums[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t each = (count + kThreads - 1) / kThreads, begin = at.thread * each;
    const std::int64_t end = begin + each < count ? begin + each : count;
    if constexpr (kPhase == 0) {
      std::uint32_t sum = 0;
      for (std::int64_t i = begin; i < end; ++i) sum += numbers[i];
      shared.sums[at.thread] = sum;
    } else if constexpr (kPhase == 1) {
      if (at.thread != 0) return;
      std::uint32_t sum = 0;
      for (std::uint32_t& of_thread : shared.sums) {
        const std::uint32_t before = sum;
        sum += of_thread;
        of_thread = before;
      }
    } else {
      std::uint32_t sum = shared.sums[at.thread];
      for (std::int64_t i = begin; i < end; ++i) {
        const std::uint32_t before = sum;
        sum += numbers[i];
        numbers[i] = before;
      }
    }
  }
  std::uint32_t* numbers;
  std::int64_t count;
};

// places: of the items, null: item i is at place i.
// An item counts the items of its block before it that have its key: no atomic addition, so that
// the order is the items' own.
struct MovePlacesKernel : SortTurn {
  static constexpr int kPhases = 2;
  struct Shared {
    std::int32_t keys[kThreads];
  };
  struct Own {};
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own&) const {
    const std::int64_t i = std::int64_t{at.block} * kThreads + at.thread;
    if constexpr (kPhase == 0) {
      shared.keys[at.thread] = i < count ? KeyOf(i) : -1;
    } else if (i < count) {
      const int key = shared.keys[at.thread];
      std::uint32_t target = Of(key, at);
      for (int t = 0; t < at.thread; ++t) target += shared.keys[t] == key;
      to.tokens[target] = tokens[i];
      to.places[target] = places == nullptr ? static_cast<std::int32_t>(i) : places[i];
    }
  }
  const std::int32_t* places;
  SortedPlaces to;
};

// first[token]: how many of the sorted tokens lie below it. For all tokens and one more.
// A binary search by each thread; the places of token t are first[t] to before first[t + 1].
struct FirstPlaces {
  ADA_HOST_DEVICE void operator()(std::int64_t token) const {
    std::int64_t low = 0, high = count;
    while (low < high) {
      const std::int64_t middle = (low + high) / 2;
      if (tokens[middle] < token)
        low = middle + 1;
      else
        high = middle;
    }
    first[token] = static_cast<std::int32_t>(low);
  }
  const std::int32_t* tokens;
  std::int64_t count;
  std::int32_t* first;
};

}  // namespace ada::backend::cuda
