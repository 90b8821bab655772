// Batch norm, alone or with the residual sum and the relu behind it; see kernels/batch_norm.h.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

// Null with `recomputed`: declined. The op takes the moments of x itself (x_moments is not read).
std::unique_ptr<Op> MakeBatchNormOp(const Context& context, const BatchNormSpec& spec);

}  // namespace ada::backend::cuda
