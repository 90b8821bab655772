// Attention, for which this backend has no kernels: it is refused by name.
#include "backend/cuda/ops/ops.h"
#include "core/error.h"

namespace ada::backend::cuda {

template <>
std::unique_ptr<Op> MakeOp(const Context&, const AttentionSpec& spec) {
  throw ConfigError("layer " + spec.layer + ": kind " + AttentionSpec::kKind +
                    " runs on the CPU alone; set device.kind: cpu");
}

}  // namespace ada::backend::cuda
