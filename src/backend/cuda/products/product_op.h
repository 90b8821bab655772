// Convolution and linear layers as ops: what surrounds the products.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

// Null where `recomputed` is set: this fusion is declined.
std::unique_ptr<Op> MakeConv2dOp(const Context& context, const Conv2dSpec& spec);
std::unique_ptr<Op> MakeLinearOp(const Context& context, const LinearSpec& spec);

}  // namespace ada::backend::cuda
