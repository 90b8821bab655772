// Gradients of small weights and of their biases, of several layers by one launch.
#pragma once
#include "backend/cuda/kernels/matmul.h"
#include "backend/cuda/kernels/round_values.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/stream.h"

namespace ada::backend::cuda {

// What becomes of a layer's sums: dw, with its largest magnitude, and db.
using GradientToDw = RoundValuesKernel<UnscaledGradient, StatsLevel::kLargest>;
using GradientToDb = LastBlockKernel<ForEachKernel<SumRuns>, ForEachKernel<UnscaledBias>>;
using GradientKernel = FusedPair<GradientToDw, GradientToDb>;

// Kernels that wait for each other's launch. The side stream has one, and says when
// (side_stream.h); where there is no room for one more, those before it are launched.
class GradientGroup {
 public:
  explicit GradientGroup(Stream& stream) : stream_(stream) {}
  bool empty() const { return all_.count == 0; }
  void Add(const GradientKernel& kernel, int blocks) {
    if (all_.count == kMost) LaunchAll();
    all_.Add(kernel, blocks);
  }
  void LaunchAll() {
    Launch(stream_, all_, all_.blocks());
    Forget();
  }
  void Forget() { all_.count = 0; }

 private:
  // As many as a kernel's arguments have room for.
  static constexpr int kMost =
      static_cast<int>((kMostArguments - 64) / (sizeof(GradientKernel) + sizeof(int)));

  Stream& stream_;
  FusedKernels<GradientKernel, kMost> all_;
};

}  // namespace ada::backend::cuda
