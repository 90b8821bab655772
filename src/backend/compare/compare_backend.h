// A backend that wraps two: every op runs on both, on the same inputs, and the first op whose
// results differ by more than tolerances.h allows is reported. The run continues with the first's
// results. It is slow, and layers are not fused across (recomputed batch norms are declined).
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/compare/tolerances.h"

namespace ada::backend {
// Throws DeviceError if the two divide tensors into different reduction blocks.
std::unique_ptr<Backend> MakeCompareBackend(std::unique_ptr<Backend> first,
                                            std::unique_ptr<Backend> second,
                                            const CompareOptions& options = {});

}  // namespace ada::backend
