// The update of all parameters; see kernels/update.h.
#pragma once
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

std::unique_ptr<UpdateOp> MakeUpdateOp(const Context& context, const UpdateRule& rule,
                                       const std::vector<UpdateSlot>& slots,
                                       const std::vector<WatchedRounding>& watched);

}  // namespace ada::backend::cuda
