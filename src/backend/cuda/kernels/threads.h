// How the threads and blocks of a launch work together.
#pragma once
#include <cstdint>
#include <cstring>

#include "backend/cuda/launch.h"
#include "backend/formulas.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// --- Adjacent threads ---

// Combines results of adjacent threads of a warp, without a barrier.
// In lane 0 of kLanes threads of one warp: own(0), own(1), ... own(kLanes - 1), joined in this
// order; nothing in the others. All of them call it. On a device each calls own(lane) and they
// shuffle what they got; the host executor, whose threads run one after the other, computes all in
// lane 0. `own` is to read only what was written before this phase.
template <int kLanes, class Own, class Join>
ADA_HOST_DEVICE inline auto JoinLanes(int lane, Own&& own, Join&& join) {
  static_assert(kLanes <= 32 && 32 % kLanes == 0);
  auto all = own(lane);
#ifdef __CUDA_ARCH__
  static_assert(sizeof all % 4 == 0);
  constexpr int kWords = sizeof all / 4;
  const unsigned whole = kLanes == 32 ? 0xffffffffu : (1u << kLanes % 32) - 1;
  const unsigned group = whole << (threadIdx.x % 32 / kLanes * kLanes);
  std::uint32_t words[kWords];
  std::memcpy(words, &all, sizeof all);
#pragma unroll
  for (int k = 1; k < kLanes; ++k) {
    std::uint32_t got[kWords];
    for (int i = 0; i < kWords; ++i) got[i] = __shfl_sync(group, words[i], k, kLanes);
    auto other = all;
    std::memcpy(&other, got, sizeof other);
    if (lane == 0) all = join(all, other);
  }
#else
  if (lane == 0)
    for (int k = 1; k < kLanes; ++k) all = join(all, own(k));
#endif
  return all;
}

// --- Groups of threads ---

// 16 groups a block, 16 threads each: sums over groups of values (norms) and rows (attention).
struct GroupThreads {
  static constexpr int kThreads = 256, kGroups = kThreads / kSumLanes;
  static int Blocks(std::int64_t groups) {
    return static_cast<int>((groups + kGroups - 1) / kGroups);
  }

  ADA_HOST_DEVICE static std::int64_t Group(const ThreadIndex& at) {
    return std::int64_t{at.block} * kGroups + at.thread / kSumLanes;
  }
  ADA_HOST_DEVICE static int Lane(const ThreadIndex& at) { return at.thread % kSumLanes; }
  ADA_HOST_DEVICE static double Sum(const double* lanes, const ThreadIndex& at) {
    return SumOfLanes(lanes + at.thread / kSumLanes * kSumLanes);
  }
};

// --- The block that ends last ---

// A kernel and the one that combines its results, in one launch: the block that ends last does the
// combining. Blocks draw tickets; the block with the last ticket sees what all others wrote.
// The ticket of a block whose results are written: how many came before it. One thread calls it,
// after a phase in which the block wrote.
ADA_HOST_DEVICE inline std::uint32_t TakeTicket(std::uint32_t* finished) {
#ifdef __CUDA_ARCH__
  __threadfence();
  const std::uint32_t ticket = atomicAdd(finished, 1u);
  __threadfence();
  return ticket;
#else
  return (*finished)++;
#endif
}

// First, then Then. Blocks are in `columns` columns, block b in column b % columns; of each column
// the block that ends last runs block b % columns of Then. `finished`: a counter a column, zero
// between launches; null: Then is left to a launch of its own.
// Saves a launch, whose start costs more than the little work of Then. It relies on nothing but the
// ticket: the other blocks may have ended, and must not be waited for.
template <class FirstKernel, class Then>
struct LastBlockKernel {
  using First = FirstKernel;
  static_assert(Then::kThreads <= First::kThreads);
  static constexpr int kThreads = First::kThreads, kTicket = First::kPhases,
                       kPhases = kTicket + 1 + Then::kPhases;
  struct Shared {
    union {
      typename First::Shared first;
      typename Then::Shared then;
    };
    std::uint32_t is_last;
  };
  struct Own {
    typename First::Own first;
    typename Then::Own then;
  };

  template <int kPhase>
  ADA_HOST_DEVICE int Turns(const ThreadIndex& at) const {
    if constexpr (kPhase < kTicket)
      return TurnsOf<kPhase>(first, at);
    else
      return 1;
  }
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase < kTicket) {
      first.template Run<kPhase>(at, shared.first, own.first);
    } else if (finished != nullptr) {
      const int column = at.block % columns;
      if constexpr (kPhase == kTicket) {
        if (at.thread == 0)
          shared.is_last =
              TakeTicket(finished + column) + 1 == static_cast<std::uint32_t>(at.blocks / columns);
      } else if (shared.is_last != 0) {
        if (at.thread < Then::kThreads)
          then.template Run<kPhase - kTicket - 1>({column, at.thread, columns}, shared.then,
                                                  own.then);
        if (kPhase == kPhases - 1 && at.thread == 0) finished[column] = 0;
      }
    }
  }

  First first;
  Then then;
  std::uint32_t* finished = nullptr;
  int columns = 1;
};

// `first` in `blocks` blocks, and `then` in a block a column after it: by one launch, or by two
// where `finished` is null or the stream's switches say so.
template <class FirstKernel, class Then>
void LaunchInTurn(Stream& stream, const FirstKernel& first, const Then& then,
                  std::uint32_t* finished, int blocks, int columns = 1) {
  if (blocks <= 0) return;
  const bool at_once = finished != nullptr && stream.switches().last_block;
  Launch(stream,
         LastBlockKernel<FirstKernel, Then>{first, then, at_once ? finished : nullptr, columns},
         blocks);
  if (!at_once) Launch(stream, then, columns);
}

// --- Kernels in one launch ---

// Kernels of one type that do not wait for each other, in one launch: the first has the blocks
// before ends[0], the next those before ends[1], and so on. Each sees its own blocks alone, so that
// its results are those of a launch of its own.
template <class Kernel, int kMost>
struct FusedKernels {
  using First = Kernel;
  static constexpr int kThreads = Kernel::kThreads, kPhases = Kernel::kPhases;
  using Shared = typename Kernel::Shared;
  using Own = typename Kernel::Own;

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    int k = 0, begin = 0;
    while (at.block >= ends[k]) begin = ends[k++];
    of[k].template Run<kPhase>({at.block - begin, at.thread, ends[k] - begin}, shared, own);
  }
  void Add(const Kernel& kernel, int blocks) {
    of[count] = kernel, ends[count] = this->blocks() + blocks;
    ++count;
  }
  int blocks() const { return count == 0 ? 0 : ends[count - 1]; }

  Kernel of[kMost] = {};
  int ends[kMost] = {};
  int count = 0;
};

// What the threads of a block have for two kernels: shared memory for one at a time, and the values
// of their own of both.
template <class First, class Second>
struct MemoryOfTwo {
  union Shared {
    typename First::Shared first;
    typename Second::Shared second;
  };
  struct Own {
    typename First::Own first;
    typename Second::Own second;
  };
};

// The same of two types. One of them at the most should have values of its own from phase to phase
// (Own): a thread has registers for both.
template <class FirstKernel, class Second>
struct FusedPair {
  using First = FirstKernel;
  static constexpr int kThreads =
      First::kThreads > Second::kThreads ? First::kThreads : Second::kThreads;
  static constexpr int kPhases =
      First::kPhases > Second::kPhases ? First::kPhases : Second::kPhases;
  using Shared = typename MemoryOfTwo<First, Second>::Shared;
  using Own = typename MemoryOfTwo<First, Second>::Own;

  // Those of the first alone.
  template <int kPhase>
  ADA_HOST_DEVICE int Turns(const ThreadIndex& at) const {
    if constexpr (kPhase < First::kPhases)
      return at.block < first_blocks ? TurnsOf<kPhase>(first, at) : 1;
    else
      return 1;
  }
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if (at.block < first_blocks) {
      if constexpr (kPhase < First::kPhases)
        if (at.thread < First::kThreads)
          first.template Run<kPhase>({at.block, at.thread, first_blocks, at.turn}, shared.first,
                                     own.first);
    } else if constexpr (kPhase < Second::kPhases) {
      if (at.thread < Second::kThreads)
        second.template Run<kPhase>({at.block - first_blocks, at.thread, at.blocks - first_blocks},
                                    shared.second, own.second);
    }
  }

  First first;
  Second second;
  int first_blocks;
};

// Launches them so, or one after the other where the stream's switches say so.
template <class Kernel, int kMost>
void LaunchFused(Stream& stream, const FusedKernels<Kernel, kMost>& all) {
  if (stream.switches().fused) return Launch(stream, all, all.blocks());
  for (int k = 0; k < all.count; ++k)
    Launch(stream, all.of[k], all.ends[k] - (k == 0 ? 0 : all.ends[k - 1]));
}
// A kernel and one whose block b reads nothing of it but what its block b wrote, in one launch: the
// phases of the first, then those of the second.
template <class FirstKernel, class Second>
struct FusedPhases {
  using First = FirstKernel;
  static_assert(First::kThreads == Second::kThreads);
  static constexpr int kThreads = First::kThreads, kPhases = First::kPhases + Second::kPhases;
  using Shared = typename MemoryOfTwo<First, Second>::Shared;
  using Own = typename MemoryOfTwo<First, Second>::Own;

  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if constexpr (kPhase < First::kPhases)
      first.template Run<kPhase>(at, shared.first, own.first);
    else
      second.template Run<kPhase - First::kPhases>(at, shared.second, own.second);
  }

  First first;
  Second second;
};

// --- A launch in parts ---

// One launch in parts: kernels that measure or tell what all their blocks find, where only some of
// the blocks' values are in memory at a time. The last block of the last part is the one that ends
// last.
// Blocks `first` .. of `blocks` of a kernel whose phase 1 takes values by the number of its block
// (FlatStatsKernel, TailKernel): these number the values of this part from 0 on.
// Attention's scores are in memory some heads at a time: their statistics are those of one launch
// over all heads all the same.
template <class Kernel>
struct PartOfLaunch {
  static constexpr int kThreads = Kernel::kThreads, kPhases = Kernel::kPhases;
  using First = Kernel;
  using Shared = typename Kernel::Shared;
  using Own = typename Kernel::Own;
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    kernel.template Run<kPhase>({kPhase == 1 ? at.block : first + at.block, at.thread, blocks},
                                shared, own);
  }

  Kernel kernel;
  int first, blocks;
};

// --- A thread's loop over memory ---

// A thread's loop over memory that loads several values ahead of their use, so that with few
// threads the loop does not wait for every single load.
// use(i, load(i)) for i = begin, begin + step, ... below end, in this order. Up to kAhead are
// loaded before the first is used: what use() stores, no other load() of the loop may read.
template <int kAhead = 8, class LoadItem, class UseItem>
ADA_HOST_DEVICE inline void ForEvery(std::int64_t begin, std::int64_t end, std::int64_t step,
                                     LoadItem&& load, UseItem&& use) {
  for (std::int64_t i = begin; i < end; i += kAhead * step) {
    decltype(load(i)) items[kAhead];
    for (int k = 0; k < kAhead; ++k) {
      const std::int64_t at = i + k * step;
      items[k] = load(at < end ? at : i);
    }
    for (int k = 0; k < kAhead; ++k)
      if (i + k * step < end) use(i + k * step, items[k]);
  }
}

}  // namespace ada::backend::cuda
