// Attention whose scores never leave the multiprocessors on their way to y: one launch forward, and
// backward two, or three where the launch that measures dy makes no decision.
#pragma once
#include <memory>

#include "backend/backend.h"
#include "backend/cuda/context.h"

namespace ada::backend::cuda {

// Whether an attention is computed so: rows of up to 256 keys, heads of up to 128 values, all
// operands in one format of 16 bits, and no more scores than lie in memory at a time
// (CudaSwitches::scores). Not where probabilities are kept, or a rule is exact_range.
bool FusesAttention(const Context& context, const AttentionSpec& spec);
std::unique_ptr<Op> MakeFusedAttention(const Context& context, const AttentionSpec& spec);

}  // namespace ada::backend::cuda
