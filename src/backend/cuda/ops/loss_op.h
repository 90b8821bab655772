// Softmax cross-entropy; see kernels/loss.h.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

std::unique_ptr<LossOp> MakeLossOp(const Context& context, const LossSpec& spec);

}  // namespace ada::backend::cuda
