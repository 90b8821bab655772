// Max and average pooling; see kernels/pool.h.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

// Throws ConfigError where a window has more positions than 16 bits can tell apart.
std::unique_ptr<Op> MakeMaxPoolOp(const Context& context, const MaxPoolSpec& spec);
std::unique_ptr<Op> MakeAvgPoolOp(const Context& context, const AvgPoolSpec& spec);

}  // namespace ada::backend::cuda
