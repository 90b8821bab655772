// One launch in parts: kernels that measure or tell what all their blocks find, where only some of
// the blocks' values are in memory at a time. The last block of the last part is the one that ends
// last.
#pragma once
#include "backend/cuda/launch.h"

namespace ada::backend::cuda {

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

}  // namespace ada::backend::cuda
