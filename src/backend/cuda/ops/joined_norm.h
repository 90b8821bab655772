// Batch norm's sums over all processes (parallel.sync_batch_norm): one message each way, in the
// stream.
#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cuda/context.h"
#include "backend/cuda/kernels/batch_norm.h"
#include "backend/cuda/launch.h"
#include "backend/cuda/link.h"

namespace ada::backend::cuda {

// Belongs to a batch norm op. Kernels put this process's count and two sums by channel to part();
// Join gathers those of all processes and makes of them what the op reads, in the order of
// processes.
class JoinedNorm {
 public:
  // Works in a context that has a link.
  JoinedNorm(const Context& context, std::int64_t channels)
      : context_(context),
        bytes_(static_cast<std::size_t>(2 * channels + 1) * sizeof(double)),
        part_(context.Allocate<double>(2 * channels + 1)),
        all_(context.Allocate<double>((2 * channels + 1) * context.link->ranks())),
        parts_{all_, context.link->ranks(), channels} {}

  // Where this process's sums go.
  NormPart part() const { return {part_}; }
  // After them: what they would have made of this process's sums is made of those of all.
  void Join(const BatchStatistics& of) const {
    context_.link->AllGatherInStream(part_, bytes_, all_);
    ForEach(context_.stream, parts_.channels,
            JoinStatistics{parts_, of.to, of.running_mean, of.running_var, of.momentum});
  }
  void Join(const ReduceGradient& of) const {
    context_.link->AllGatherInStream(part_, bytes_, all_);
    ForEach(context_.stream, parts_.channels,
            JoinGradientSums{parts_, of.inverse, of.scale, of.mean_dy, of.slope});
  }

 private:
  Context context_;
  std::size_t bytes_;
  double *part_, *all_;
  NormParts parts_;
};

}  // namespace ada::backend::cuda
