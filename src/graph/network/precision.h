// How a graph rounds: formats by layer and role, and how the configuration's `precision` section
// says them.
#pragma once
#include <array>
#include <functional>
#include <optional>
#include <string>

#include "config/config.h"
#include "core/blocks/block_format.h"
#include "core/number_format.h"
#include "core/tensor_names.h"
#include "scaling/rules/tensor_scale.h"

namespace ada::graph {

// What a layer rounds to, by role.
struct LayerFormats {
  NumberFormat activations, weights, gradients, weight_gradients;
  // In attention, whether probabilities and gradients of scores stay fp32. Unset: as the layer
  // says.
  std::optional<bool> wide_probabilities = {}, wide_score_gradients = {};
};
// How the products of a layer take their operands: rounded once more, or as they are stored.
struct OperandRule {
  bool rounds = false;
  NumberFormat format = kFp32;       // of blocks: of their elements
  std::optional<BlockFormat> block;  // then no scale is the tensor's own
  bool stochastic = false;
  int hadamard = 0;  // size of the transform before it is rounded; 0: none
  bool random_signs = false;
  AnyFormat named() const { return block ? AnyFormat(*block) : AnyFormat(format); }
};
struct LayerOperands {
  std::array<OperandRule, kOperands> rules;  // by Operand
  config::TensorScalingConfig scaling;       // of those; fp32 has none
  bool any() const;
};
// How a graph rounds: formats by layer name, and what holds for all of it.
struct Precision {
  LayerFormats base;  // of the network's input and of layers where `formats_of` is empty
  std::function<LayerFormats(const std::string& layer)> formats_of;
  // precision.preset: autocast: to fp16 or bf16. Then formats of a layer start from
  // AutocastFormats, by `formats_from`. autocast_on_cpu: by torch's lists for CPUs, not for CUDA.
  std::optional<NumberFormat> autocast;
  bool autocast_on_cpu = false;
  std::function<LayerFormats(const std::string& layer, const LayerFormats& start)> formats_from;
  std::function<LayerOperands(const std::string& layer)> operands_of;  // empty: all as stored
  config::SparedConfig spared;  // layers that `operands_of` does not hold for
  bool stochastic = false;      // only in training; evaluation rounds to nearest
  // Delayed scaling: of y and w, and of gradients where no per-layer policy owns their scale.
  bool scaled_forward = false, scaled_backward = false;
  // Tensors with a per-tensor scale keep their format's largest value.
  bool scaled_saturate = true;
  scaling::TensorScaleRule tensor_scale;  // format_max is filled in by tensor
};

// The formats of one layer. `format` gives activations, weights and gradients, a role's key beats
// it; weight_gradients is fp32 unless set. Then the entries of `precision.layers` whose glob
// matches the name, one after the other: an entry's `format` and role keys replace what stood
// before them. `overflow: saturate` makes every format but fp32 saturate.
LayerFormats FormatsOf(const config::PrecisionConfig& precision, const std::string& layer);
// The same with `start` instead of what the roles of `precision` say, weight_gradients apart.
LayerFormats FormatsFrom(const config::PrecisionConfig& precision, const std::string& layer,
                         const LayerFormats& start);

// The operands of one layer: what `precision.operands` says, then the entries of `precision.layers`
// whose glob matches, key by key. Those with a scale saturate, unless `overflow: format`.
LayerOperands OperandsOf(const config::PrecisionConfig& precision, const std::string& layer);

// `policy_owns_gradients`: the policy gives layers scales of their own, so that under delayed
// scaling gradients get none beside it. Keeps a copy of `precision`. Fp32 tensors never have a
// per-tensor scale.
Precision ResolvePrecision(const config::PrecisionConfig& precision, bool policy_owns_gradients);

}  // namespace ada::graph
