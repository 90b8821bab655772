// The body of DelayedScale, in fp32 as both systems compute. Included by tensor_scale.h alone.
#pragma once
#include "scaling/rules/tensor_scale.h"

namespace ada::scaling {

// amax 0, NaN or infinite: `current`. Transformer Engine: (format_max / amax) / 2^margin, and where
// that is infinite the largest fp32. MS-AMP: 2^(floor(log2(format_max / amax)) - margin), log2 in
// fp32, and inf where the quotient is (UpdateTensorScale does not take it); its 1 / current at an
// infinite amax is a slip that ours has not.
ADA_HOST_DEVICE inline float DelayedScale(const TensorScaleRule& rule, float amax, float current) {
  if (!(amax > 0) || amax - amax != 0) return current;
  const float quotient = static_cast<float>(rule.format_max) / amax;
  if (rule.power_of_two) {
    const float log = static_cast<float>(std::log2(static_cast<double>(quotient)));
    return static_cast<float>(std::exp2(std::floor(static_cast<double>(log)) - rule.margin));
  }
  const float scale = quotient / static_cast<float>(std::exp2(rule.margin));
  return scale - scale != 0 ? 3.402823466e+38f : scale;
}

}  // namespace ada::scaling
