// A kernel and the one that combines its results, in one launch: the block that ends last does the
// combining. Blocks draw tickets; the block with the last ticket sees what all others wrote.
#pragma once
#include <cstdint>

#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

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

}  // namespace ada::backend::cuda
