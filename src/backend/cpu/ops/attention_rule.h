// What the four decisions of attention look at (AttentionSpec, backend/attention_formulas.h).
#pragma once
#include "backend/backend.h"
#include "backend/cpu/context.h"

namespace ada::backend::cpu {

// Moments of `channels` channels of each position from `first` on, of `rows` images of all
// processes. Takes kMomentPositions * channels values of each worker's memory.
// An attention op asks for them where a rule looks at queries, keys or values, whose moments no
// rounding has: three of them may lie in one tensor.
inline constexpr std::int64_t kMomentPositions = 32;
TensorMoments MomentsOfPart(const Context& context, const Tensor& tensor, std::int64_t first,
                            std::int64_t channels, int rows);

}  // namespace ada::backend::cpu
