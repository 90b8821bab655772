// All that the graph knows about an op to be made, whatever its kind: tensors, gradients,
// roundings, parameters. SpecOf copies from it what a backend's spec has.
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

#include "backend/specs.h"
#include "layers/layer_keys.h"

namespace ada::layers {

// How a tensor is rounded, and where that is counted.
struct RoundedTo {
  NumberFormat format = kFp32;
  backend::RoundingStyle style;
  TensorStats* stats = nullptr;
};

// Filled by OpMaker for one op, read by `spec` of its kind, and then discarded: specs copy what
// they need. Pointers are backend addresses in the graph's arenas.
struct OpParts {
  struct Parameter {
    Tensor value, gradient;  // gradient: empty for a running statistic, and without training
  };
  std::string layer;
  LayerKeys keys;
  std::vector<Tensor> x;  // the inputs; no data if recomputed
  Tensor y;               // the output, of the whole chain where layers are fused
  backend::Gradient dy;
  std::vector<backend::Gradient> dx;  // one per input, empty if not computed; or none at all
  std::vector<Parameter> parameters;  // in the order of the kind's row
  RoundedTo rounded_y;                // for kinds that round their output
  scaling::LayerScaler* scaler =
      nullptr;  // null where dx is not computed, or no alpha is chosen for it

  // Parts of attention.
  RoundedTo p, ds;
  bool rounds_p = true, rounds_ds = true;
  backend::AttentionRoundings attention_operands;
  float* ds_scale = nullptr;
  std::array<scaling::LayerScaler*, 4> scalers{};  // by AttentionSpec::Decision

  // Parts of kinds with a weight.
  bool adds_dw = false;  // another layer's op has already written dw of the same weight
  RoundedTo w, dw;
  const scaling::TensorScaler* x_per_tensor_scale = nullptr;
  backend::OperandRoundings operands;
  backend::SumsOfProducts sums;  // of attention too
  backend::ChannelMoments y_moments;
  bool y_amax_deferred = false;

  // Parts of a batch norm, with what is fused after it.
  backend::ChannelMoments x_moments;
  RoundedTo left_x;  // whose largest magnitude the op must compute; without stats: none
  Tensor addend;
  RoundedTo sum;
  bool relu = false;

  // Parts of a pool that records the positions of its maxima, and of the layer that reads them;
  // pooled: the pool's output.
  std::uint16_t* positions = nullptr;
  Shape pooled;

  backend::RecomputedNorm recomputed;  // for a batch norm and for the layer that consumes it
};

// Makes a spec and fills in the members that most specs have, by their names; the kind fills in the
// rest.
template <class Spec>
Spec SpecOf(const OpParts& op) {
  Spec spec;
  spec.layer = op.layer;
  // Specs with one input have a Tensor named x, those with several inputs a vector.
  if constexpr (std::is_same_v<decltype(spec.x), Tensor>) {
    spec.x = op.x[0];
  } else {
    spec.x = op.x;
  }
  if constexpr (requires { spec.y; }) spec.y = op.y;
  if constexpr (requires { spec.dy; }) {
    spec.dy = op.dy;
    if constexpr (!std::is_same_v<decltype(spec.dx), backend::Gradient>) {
      spec.dx = op.dx;
    } else if (!op.dx.empty()) {
      spec.dx = op.dx[0];
    }
  }
  if constexpr (requires { spec.y_stats, spec.y_style; }) {
    spec.y_stats = op.rounded_y.stats;
    spec.y_style = op.rounded_y.style;
  }
  if constexpr (requires { spec.scaler; }) spec.scaler = op.scaler;
  if constexpr (requires { spec.sums; }) spec.sums = op.sums;
  if constexpr (requires { spec.kernel; }) spec.kernel = op.keys.kernel;
  if constexpr (requires { spec.stride; }) spec.stride = op.keys.stride;
  if constexpr (requires { spec.padding; }) spec.padding = op.keys.padding;
  return spec;
}

// Makes the spec of kinds that need no more than that.
template <class Spec>
backend::OpSpec PlainSpec(const OpParts& op) {
  return SpecOf<Spec>(op);
}

// The same for kinds with one weight.
template <class Spec>
backend::OpSpec WeightedSpec(const OpParts& op) {
  auto spec = SpecOf<Spec>(op);
  spec.w = op.parameters[0].value;
  spec.dw = op.parameters[0].gradient;
  return spec;
}

}  // namespace ada::layers
