// What the parts of a loss (its rows, images or blocks of threads) add up to, over the calls that
// go on with each other.
#pragma once
#include "backend/cuda/context.h"
#include "backend/cuda/kernels/loss.h"
#include "backend/cuda/kernels/threads.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/pinned.h"

namespace ada::backend::cuda {

// Belongs to a loss op. The total stays on the device while calls accumulate, and the last block of
// each call writes it to pinned memory as well, where Result reads it.
class LossTotal {
 public:
  // most: parts of a call.
  LossTotal(const Context& context, std::int64_t most)
      : stream_(context.stream),
        on_host_(context.stream),
        result_(context.Allocate<LossResult>(1)),
        parts_(context.Allocate<LossResult>(most)),
        finished_(context.AllocateZeroed<std::uint32_t>(1)) {}
  // For a kernel that writes them.
  LossResult* parts() const { return parts_; }
  // Launches that kernel, of which each block writes one part; the last one adds them up.
  template <class Kernel>
  void Launch(const Pass& pass, const Kernel& kernel, std::int64_t blocks) const {
    constexpr int kThreads = Kernel::kThreads < 128 ? Kernel::kThreads : 128;
    using Sum = LossSum<kThreads>;
    const Sum sum{parts_, static_cast<int>(blocks), pass.accumulate, result_, on_host_.get()};
    // Without parts the sum is zero.
    if (blocks == 0) return cuda::Launch(stream_, sum, 1);
    LaunchInTurn(stream_, kernel, sum, finished_, static_cast<int>(blocks));
  }
  LossResult Result() const {
    stream_.Synchronize();
    return *on_host_;
  }

 private:
  Stream& stream_;
  Pinned<LossResult> on_host_;
  LossResult* result_;
  LossResult* parts_;
  std::uint32_t* finished_;
};

}  // namespace ada::backend::cuda
