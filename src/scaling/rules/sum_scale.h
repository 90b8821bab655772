// The scale of a gradient that is added up in a format of 8 bits: FP8-LM (arXiv 2310.18313, section
// 2.1) as MS-AMP has it (msamp/megatron/optimizer/distrib_optimizer.py, reduce_model_grads). A
// factor mu on top of the scale of the largest magnitude leaves room for the sum. It halves where
// too many values of the sum saturate, and else grows slowly.
#pragma once
#include <cstdint>
#include <string>

#include "scaling/rules/state_text.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::scaling {

// The keys of `precision.accumulated_gradients` under scaling fp8_lm.
struct SumScaleRule {
  double saturation_limit = 1e-5;       // a larger share of saturated values halves mu
  std::int64_t growth_interval = 1000;  // growths in which mu doubles
  std::int64_t interval = 1;            // steps from one look at the share to the next
};

// What is kept of one gradient between steps. `scale`: of its last cast, in which the scale of a
// gradient of zeros rests.
struct SumScale {
  float mu = 1, scale = 1;
};

// mu before the first step: 1 / sqrt(processes).
float FirstMu(int processes);

// mu after a sum of `values` values, of which `saturated` have the format's largest magnitude; in
// fp32. It stays where the result would be 0, subnormal or infinite.
float NextMu(const SumScaleRule& rule, float mu, std::int64_t saturated, std::int64_t values);

// mu * 2^floor(log2(format_max / amax)). `current` where amax is 0 or not finite, or where the
// scale or its inverse would not be finite.
float ScaleOfSum(double format_max, float amax, float mu, float current);

StateMap SaveSumScale(const SumScale& of);
// Throws DataError naming `gradient` ("fc.weight") where keys or values do not fit.
SumScale LoadSumScale(const StateMap& state, const std::string& gradient);

}  // namespace ada::scaling
