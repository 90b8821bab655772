// What a run counts when it rounds a tensor, for values that come from elsewhere (a file).
#pragma once
#include <cstdint>

#include "core/number_format.h"
#include "core/stats.h"

namespace ada::backend::cpu {

// The full statistics of rounding the `n` values x[i] * factor to `format`: the kernels and the
// order of additions are those of a run. `moments`, unless null: of the rounded values.
TensorStats CountRounding(const float* x, std::int64_t n, float factor, const NumberFormat& format,
                          TensorMoments* moments = nullptr);

}  // namespace ada::backend::cpu
