// A scale per tensor from the history of its largest magnitudes ("delayed scaling"): the FP8 recipe
// of NVIDIA Transformer Engine (transformer_engine/pytorch/quantization.py) and the power-of-two
// variant of MS-AMP (msamp/common/tensor/meta.py). Plain data and one inline rule, so that every
// backend can apply it.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "scaling/rules/rules.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {

// Which largest magnitude is used: of the whole history, or of its last step.
enum class Amax : std::uint8_t { kMax, kMostRecent };

// The keys of `precision.tensor_scaling`, and the format that they are applied to.
struct TensorScaleRule {
  double format_max = 448;  // largest value of the tensor's format
  double margin = 0;        // scale divided by 2^margin
  std::int32_t history = 1024;
  Amax amax = Amax::kMax;
  bool power_of_two = false;  // MS-AMP's way
  // As in Transformer Engine: values that are not finite enter the history, and keep the scale
  // unchanged until they have left it. Otherwise they do not enter the history.
  bool reference = false;
};

// The next scale from `amax` (of the history or the last step), in fp32 as both systems compute it.
// amax 0, NaN or infinite: `current`. Transformer Engine: (format_max / amax) / 2^margin, or the
// largest fp32 if that is infinite. MS-AMP: 2^(floor(log2(format_max / amax)) - margin), log2 in
// fp32, and inf where the quotient is (which UpdateTensorScale rejects); its 1 / current at an
// infinite amax is a bug that is not reproduced.
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

// The scale of the tensor itself, whose largest magnitude is `amax`: Transformer Engine's current
// scaling (transformer_engine/common/recipe/recipe_common.cuh). 1 if amax is 0, NaN or infinite;
// under power_of_two the mantissa is cut off.
ADA_HOST_DEVICE inline float CurrentScale(const TensorScaleRule& rule, float amax) {
  TensorScaleRule whole = rule;
  whole.power_of_two = false;
  const float scale = DelayedScale(whole, amax, 1);
  if (!rule.power_of_two) return scale;
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scale) & 0xff800000u;
  return bits == 0 ? scale : __builtin_bit_cast(float, bits);
}

// One tensor's scale in this step, which ops read. It may be in a backend's memory.
struct TensorScaler {
  float scale = 1;
};
// What the next step's scale is computed from. Host only.
struct TensorScaleHistory {
  TensorScaleRule rule;
  std::vector<float> amax;  // ring of the last `history` magnitudes; grows until it is full
  std::int32_t next = 0;    // index of the next one
};
// `amax`: the largest unscaled magnitude of this step's tensor; inf and NaN allowed.
void UpdateTensorScale(TensorScaleHistory& history, float amax, TensorScaler& scaler);

StateMap SaveTensorScale(const TensorScaleHistory& history, const TensorScaler& scaler);
// Throws DataError naming `tensor` ("conv1.y") where keys or values do not fit.
void LoadTensorScale(const StateMap& state, const std::string& tensor, TensorScaleHistory& history,
                     TensorScaler& scaler);

// The same for a tensor whose rule may have been different when `state` was saved: the newest
// magnitudes, as many as the rule uses, are kept, and the scale is computed from them.
void AdoptTensorScale(const StateMap& state, const std::string& tensor, TensorScaleHistory& history,
                      TensorScaler& scaler);

}  // namespace ada::scaling
