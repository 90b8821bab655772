// How a graph rounds: formats by layer and role, resolved from the section `precision` of the
// configuration.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>

#include "backend/hadamard.h"
#include "config/precision_config.h"
#include "io/tensor_names.h"
#include "number/blocks/block_format.h"
#include "number/number_format.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::graph {

// What a layer rounds to, by role.
struct LayerFormats {
  NumberFormat activations, weights, gradients, weight_gradients;
  // The format of the gradient that a product writes for the layer's output; unset: `gradients`.
  std::optional<NumberFormat> product_gradients = {};
  // In attention, whether probabilities and gradients of scores stay fp32. Unset: the layer's own
  // keys decide.
  std::optional<bool> wide_probabilities = {}, wide_score_gradients = {};
};
// How the matmuls of a layer use their operands: rounded once more, or as they are stored.
struct OperandRule {
  bool rounds = false;
  NumberFormat format = kFp32;       // of blocks: of their elements
  std::optional<BlockFormat> block;  // if set, there is no per-tensor scale
  bool stochastic = false;
  config::RoundingKind rounding = config::RoundingKind::kNearest;
  int random_bits = 8;
  backend::HadamardRule hadamard;  // before it is rounded
  // As the forward product's operand of the same tensor, whose rule it then has.
  bool as_forward = false;
  config::TensorScalingConfig scaling;           // of a plain format but fp32; kAdaptive: of blocks
  std::optional<config::OverflowKind> overflow;  // unset: as the precision's
  AnyFormat named() const { return block ? AnyFormat(*block) : AnyFormat(format); }
  // Whether the scale that the tensor has beside its blocks is chosen by exact_range.
  bool adapts() const {
    return rounds && block && block->tensor_scale && !block->row_scaled &&
           scaling.kind == config::TensorScalingConfig::Kind::kAdaptive;
  }
};
struct LayerOperands {
  std::array<OperandRule, kOperands> rules;              // by Operand
  std::array<OperandRule, kAttentionTensors> attention;  // by AttentionTensor
  const OperandRule& Of(Operand operand) const { return rules[IndexOf(operand)]; }
  const OperandRule& Of(AttentionOperand operand) const {
    return attention[static_cast<std::size_t>(TensorOf(operand))];
  }
  bool any() const;
};
// How a graph rounds: formats by layer name, and settings for all of it.
struct Precision {
  LayerFormats base;  // if `formats_of` is empty
  // By the name of a layer or of the network's input.
  std::function<LayerFormats(const std::string& layer)> formats_of;
  // precision.preset: autocast: to fp16 or bf16. Then formats of a layer start from
  // AutocastFormats, by `formats_from`. autocast_on_cpu: by torch's lists for CPUs, not for CUDA.
  std::optional<NumberFormat> autocast;
  bool autocast_on_cpu = false;
  std::function<LayerFormats(const std::string& layer, const LayerFormats& start)> formats_from;
  // Empty: all as stored. spared: of a layer to which only entries of precision.layers apply. Gives
  // rules of both kinds of layers with operands, whatever kind this one is.
  std::function<LayerOperands(const std::string& layer, bool spared)> operands_of;
  config::SparedConfig spared;  // how many layers are spared
  // Empty: all sums are fp32. spared: of a layer to which only entries of precision.layers apply.
  std::function<scaling::Accumulators(const std::string& layer, bool spared)> accumulators_of;
  config::SparedConfig spared_sums;
  bool stochastic = false;  // only in training; evaluation rounds to nearest
  // Delayed scaling: for y and w, and for gradients unless a per-layer policy decides their scale.
  bool scaled_forward = false, scaled_backward = false;
  // Tensors with a per-tensor scale saturate at their format's largest value.
  bool scaled_saturate = true;
  scaling::TensorScaleRule tensor_scale;  // format_max is filled in for each tensor
};

// The formats of one layer. `format` sets activations, weights and gradients, and a role's key
// overrides it; weight_gradients is fp32 unless set. Then the entries of `precision.layers` whose
// glob matches the name are applied in order: an entry's `format` and role keys replace earlier
// values. `overflow: saturate` makes every format but fp32 saturate.
LayerFormats FormatsOf(const config::PrecisionConfig& precision, const std::string& layer);
// The same starting from `start` instead of the roles of `precision`, except weight_gradients.
LayerFormats FormatsFrom(const config::PrecisionConfig& precision, const std::string& layer,
                         const LayerFormats& start);

// `policy_owns_gradients`: the policy decides a scale for each layer, so that under delayed scaling
// gradients get no per-tensor scale in addition. Keeps a copy of `precision`. Fp32 tensors never
// have a per-tensor scale.
Precision ResolvePrecision(const config::PrecisionConfig& precision, bool policy_owns_gradients);

// The fixed scale of an operand's tensor (`tensor_scaling: {kind: static, values}`).
double StaticScaleOf(Operand operand, const config::TensorScalingConfig::StaticScales& values);

}  // namespace ada::graph
