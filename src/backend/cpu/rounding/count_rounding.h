// The statistics that a run would count of given values, for programs that have no run.
#pragma once
#include <cstdint>

#include "number/number_format.h"
#include "number/stats.h"

namespace ada::backend::cpu {

// The full statistics of rounding the `n` values x[i] * factor to `format`: the kernels and the
// order of additions are those of a run. `moments`, unless null: of the rounded values.
TensorStats CountRounding(const float* x, std::int64_t n, float factor, const NumberFormat& format,
                          TensorMoments* moments = nullptr);

}  // namespace ada::backend::cpu
