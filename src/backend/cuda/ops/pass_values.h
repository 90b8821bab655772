// What changes from step to step and is therefore read by kernels from backend memory: launches are
// recorded once and replayed, so that nothing of this may stand in a kernel's arguments.
#pragma once
#include <cstdint>

namespace ada::backend::cuda {

// The Pass of the work that runs: ops get a pointer to it from their Context.
struct PassValues {
  std::uint64_t seed = 0, draw = 0;
  std::int64_t loss_rows = 0;
  double edge = 0;
  float loss_scale = 1;
  friend bool operator==(const PassValues&, const PassValues&) = default;
};

}  // namespace ada::backend::cuda
