// The deferred amax: the largest magnitude of a tensor's stored values, taken by a kernel that
// reads all of them for another purpose (backend/decisions.h, DefersAmax).
#pragma once
#include <cstdint>

#include "backend/cuda/launch.h"
#include "number/host_device.h"
#include "number/number_grid.h"
#include "number/stats.h"

namespace ada::backend::cuda {

ADA_HOST_DEVICE inline std::uint32_t Larger(std::uint32_t a, std::uint32_t b) {
  return a > b ? a : b;
}

// A member of kernels that read all values of a tensor anyway: the moments' and the gradient sums'
// kernels add, the channels' kernel after them writes.
struct DeferredAmax {
  std::uint32_t* bits = nullptr;  // of a magnitude; 0 at the start of a pass. Null: not needed
  TensorStats* stats = nullptr;
  std::int64_t values = 0;  // of the pass

  // Adds what a thread has seen. Few threads see a value that is larger than all before.
  ADA_HOST_DEVICE void Add(std::uint32_t magnitude) const {
    if (bits != nullptr && magnitude > *static_cast<const volatile std::uint32_t*>(bits))
      AtomicMax(bits, magnitude);
  }
  // One thread calls this when all have added theirs: it writes the statistics as
  // StatsLevel::kLargest leaves them.
  ADA_HOST_DEVICE void Write() const {
    if (bits == nullptr) return;
    TensorStats all;
    all.numel = values, all.max_abs = OfBits(*bits);
    *stats = all;
    *bits = 0;
  }
};

}  // namespace ada::backend::cuda
