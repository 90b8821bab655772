// Roundings of one tensor after the other in one launch: what follows a linear layer up to the next
// norm. A block takes the same values of all of them, whole rows, so that each stage reads nothing
// but what its own block has written.
#pragma once
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/norms.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/kernels/values.h"
#include "backend/cuda/launch.h"
#include "backend/values/all.h"
#include "number/host_device.h"

namespace ada::backend::cuda {

// The same thread, which the compiler takes for another one: it keeps no register over several
// stages for what all of them compute from it.
ADA_HOST_DEVICE inline ThreadIndex OfThisStage(ThreadIndex at) {
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(at.block), "+r"(at.thread));
#endif
  return at;
}

// A kernel that may be left out of those that it is fused with.
template <class Kernel>
struct RowStage {
  static constexpr int kThreads = Kernel::kThreads, kPhases = Kernel::kPhases;
  using Shared = typename Kernel::Shared;
  using Own = typename Kernel::Own;
  template <int kPhase>
  ADA_HOST_DEVICE void Run(const ThreadIndex& at, Shared& shared, Own& own) const {
    if (active) kernel.template Run<kPhase>(OfThisStage(at), shared, own);
  }
  Kernel kernel;
  bool active = false;
};

// out = round(value(i)), with its largest magnitude.
template <class Value>
using RoundingStage = RoundValuesKernel<Value, StatsLevel::kLargest>;
using DroppedOut = MadeValue<DropoutValue>;

// The product's sums with their bias, dropout, the sum with another tensor, and the layer norm of
// that; a launch has one of them at least.
struct RowStages {
  RowStage<RoundingStage<BiasedSum>> biased;
  RowStage<RoundingStage<DroppedOut>> dropped;
  RowStage<RoundingStage<SumValue>> sum;
  RowStage<GroupStatistics> statistics;  // with norm
  RowStage<RoundingStage<GroupedNormValue>> norm;
};
using RowChainKernel = FusedPhases<
    decltype(RowStages::biased),
    FusedPhases<decltype(RowStages::dropped),
                FusedPhases<decltype(RowStages::sum), FusedPhases<decltype(RowStages::statistics),
                                                                  decltype(RowStages::norm)>>>>;

}  // namespace ada::backend::cuda
