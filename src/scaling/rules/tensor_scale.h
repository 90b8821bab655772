// A scale per tensor from the history of its largest magnitudes ("delayed scaling"), from a bound
// on them, or from the largest magnitude of the tensor or row itself: the FP8 recipes of NVIDIA
// Transformer Engine (transformer_engine/pytorch/quantization.py), the power-of-two variant of
// MS-AMP (msamp/common/tensor/meta.py), and torchao's float8 and int8 training. Plain data and
// inline rules, so that every backend can apply them.
#pragma once
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "number/number_grid.h"
#include "scaling/rules/rules.h"
#include "scaling/rules/state_text.h"

namespace ada::scaling {

// Which largest magnitude is used: of the whole history, or of its last step.
enum class Amax : std::uint8_t { kMax, kMostRecent };
// Whose rule gives the scale of a tensor or row from its own largest magnitude.
enum class ScaleSystem : std::uint8_t { kTe, kTorchao };

// The keys of `precision.tensor_scaling`, and the format that they are applied to.
struct TensorScaleRule {
  double format_max = 448;  // largest value of the tensor's format
  double margin = 0;        // scale divided by 2^margin
  std::int32_t history = 1024;
  Amax amax = Amax::kMax;
  bool power_of_two = false;  // MS-AMP's way
  // Delayed: as in Transformer Engine, values that are not finite enter the history, and keep the
  // scale unchanged until they have left it; otherwise they do not enter the history. Under
  // power_of_two log2 is rounded to fp32 before it is cut to a whole number, as in MS-AMP and
  // torchao.
  bool reference = false;
  ScaleSystem system = ScaleSystem::kTe;
  bool integer =
      false;  // the format is of whole numbers (int8), whose rows kTorchao scales its way
};

// The keys of `operands.tensor_scaling` with kind adaptive (block_range.h). Both are shares of the
// tensor's values other than zero.
struct BlockRangeRule {
  double underflow_target = 1e-3;  // that may be lost to the scales of their blocks
  double saturation_limit = 1e-3;  // whose magnitudes may lie beyond what the scale maps to its top
};

// The next scale from `amax` (of the history or the last step), in fp32 as both systems compute it.
// amax 0, NaN or infinite: `current`. Transformer Engine: (format_max / amax) / 2^margin, or the
// largest fp32 if that is infinite. MS-AMP: 2^(floor(log2(format_max / amax)) - margin), and inf
// where the quotient is (which UpdateTensorScale rejects). `reference` takes log2 in fp32 as it
// does, which rounds up just below a power of two; its 1 / current at an infinite amax is a bug
// that is not reproduced.
ADA_HOST_DEVICE inline float DelayedScale(const TensorScaleRule& rule, float amax, float current) {
  if (!(amax > 0) || amax - amax != 0) return current;
  const float quotient = static_cast<float>(rule.format_max) / amax;
  if (rule.power_of_two) {
    const float log = static_cast<float>(std::log2(static_cast<double>(quotient)));
    const double whole =
        rule.reference ? std::floor(static_cast<double>(log)) : std::ilogb(quotient);
    return static_cast<float>(std::exp2(whole - rule.margin));
  }
  const float scale = quotient / static_cast<float>(std::exp2(rule.margin));
  return scale - scale != 0 ? 3.402823466e+38f : scale;
}

// The power of two at or below a scale: its mantissa cut off.
ADA_HOST_DEVICE inline float CutToPowerOfTwo(float scale) {
  const std::uint32_t bits = __builtin_bit_cast(std::uint32_t, scale) & 0xff800000u;
  return bits == 0 ? scale : __builtin_bit_cast(float, bits);
}

// torchao's (torchao/float8/float8_utils.py, amax_to_scale, 0.18.0): format_max over the magnitude,
// but at least 1e-12, in double; 0 for inf, NaN for NaN. Under power_of_two cut to one.
// `reference`: 2^floor(log2) with log2 in fp32, which rounds up just below a power of two and then
// gives twice the scale.
ADA_HOST_DEVICE inline float TorchaoScale(const TensorScaleRule& rule, float amax) {
  constexpr double kLeast = 1e-12;
  const auto magnitude = static_cast<double>(amax);
  const auto scale = static_cast<float>(rule.format_max / std::exp2(rule.margin) /
                                        (magnitude < kLeast ? kLeast : magnitude));
  if (!rule.power_of_two || !(scale > 0)) return scale;
  if (!rule.reference) return CutToPowerOfTwo(scale);
  const auto log = static_cast<float>(std::log2(static_cast<double>(scale)));
  return static_cast<float>(std::exp2(std::floor(static_cast<double>(log))));
}

// How the values of one row are scaled: multiplied by `encode`, rounded, and divided by it or, of
// kTorchao's rows of whole numbers, multiplied by `decode`.
struct RowScale {
  float encode = 1, decode = 1;
};
ADA_HOST_DEVICE inline bool MultipliesBack(const TensorScaleRule& rule) {
  return rule.system == ScaleSystem::kTorchao && rule.integer;
}

// The scale of the tensor itself, whose largest magnitude is `amax`: Transformer Engine's current
// scaling (transformer_engine/common/recipe/recipe_common.cuh). 1 if amax is 0, NaN or infinite;
// under power_of_two the mantissa is cut off. kTorchao has TorchaoScale.
ADA_HOST_DEVICE inline float CurrentScale(const TensorScaleRule& rule, float amax) {
  if (rule.system == ScaleSystem::kTorchao) return TorchaoScale(rule, amax);
  TensorScaleRule whole = rule;
  whole.power_of_two = false;
  const float scale = DelayedScale(whole, amax, 1);
  return rule.power_of_two ? CutToPowerOfTwo(scale) : scale;
}

// The same of a row. Whole numbers under kTorchao (torchao/prototype/quantized_training/int8.py,
// quantize_int8_rowwise, 0.18.0): decode = amax / 127 in the type of the values, encode its
// inverse, at most 1e12; under power_of_two encode is cut to one.
ADA_HOST_DEVICE inline RowScale RowScaleOf(const TensorScaleRule& rule, float amax, bool bf16) {
  if (!MultipliesBack(rule)) {
    const float scale = CurrentScale(rule, amax);
    return {scale, 1.0f / scale};
  }
  constexpr float kLeast = 1e-12f;
  float decode = amax / static_cast<float>(rule.format_max);
  if (bf16) decode = OfBf16(Bf16CodeOf(decode));
  const float encode = 1.0f / (decode < kLeast ? kLeast : decode);
  if (!rule.power_of_two) return {encode, decode};
  const float cut = CutToPowerOfTwo(encode);
  return {cut, 1.0f / cut};
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

// The scale of a weight without its largest magnitude: MOSS (arXiv 2511.05811, "automatic
// scaling"). An update of AdamW moves a weight by at most the learning rate, so
//
//   max|W_t| <= max|W_0| + the sum of the learning rates since
//
// and the scale is CurrentScale of that bound. The magnitude is measured anew at an interval.
struct PredictedScale {
  TensorScaleRule rule;
  std::int64_t interval = 500;  // steps from one measurement to the next
  // Since the last measurement, which gave `measured`; NaN: there was none.
  float measured = __builtin_nanf("");
  double moved = 0;  // the learning rates, added up
  std::int64_t steps = 0;

  bool wants_measure() const { return measured != measured || steps >= interval; }
  float bound() const { return static_cast<float>(static_cast<double>(measured) + moved); }
};
void MeasureScale(PredictedScale& predicted, float amax, TensorScaler& scaler);
// After a step whose update had the learning rate `lr`; 0: there was none.
void PredictScale(PredictedScale& predicted, double lr, TensorScaler& scaler);

StateMap SavePredictedScale(const PredictedScale& predicted, const TensorScaler& scaler);
// Throws DataError naming `tensor` ("fc.forward.w") where keys or values do not fit.
void LoadPredictedScale(const StateMap& state, const std::string& tensor, PredictedScale& predicted,
                        TensorScaler& scaler);
bool IsPredictedScale(const StateMap& state);

}  // namespace ada::scaling
