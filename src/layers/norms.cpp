// Layers that normalize: batch_norm, layer_norm, rms_norm, group_norm, l2_normalize, lrn; and
// factors by channel: channel_scale, affine.
#include "layers/layer_kind.h"

namespace ada::layers {
namespace {

// Running statistics are saved and loaded with weights, but not trained. running_var starts at 1 by
// its name (StartValues).
std::vector<ParameterSpec> BatchNormParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  const Shape vector{1, 1, 1, channels};
  return {{"weight", {channels}, vector},
          {"bias", {channels}, vector, true, keys.initial_beta},
          {"running_mean", {channels}, vector, false},
          {"running_var", {channels}, vector, false}};
}

// Includes what a chain adds: addend and its rounding, relu, and the sums that the epilogue of the
// preceding convolution computed.
backend::OpSpec BatchNormSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::BatchNormSpec>(op);
  spec.out = op.y;
  spec.gamma = op.parameters[0].value;
  spec.dgamma = op.parameters[0].gradient;
  spec.beta = op.parameters[1].value;
  spec.dbeta = op.parameters[1].gradient;
  spec.running_mean = op.parameters[2].value;
  spec.running_var = op.parameters[3].value;
  spec.addend = op.addend;
  spec.sum_stats = op.sum.stats;
  spec.sum_style = op.sum.style;
  spec.relu = op.relu;
  spec.recomputed = op.recomputed;
  spec.eps = static_cast<float>(op.keys.eps);
  spec.momentum = static_cast<float>(op.keys.momentum);
  spec.x_moments = op.x_moments;
  spec.x_stats = op.measured_x.stats, spec.x_style = op.measured_x.style;
  spec.y_format = op.rounded_y.format;
  return spec;
}

void InferGroupNorm(LayerKeys& keys, LayerShapes& shapes) {
  Require(shapes.input().c % keys.groups == 0,
          "groups " + std::to_string(keys.groups) + " must divide the input's channels " +
              std::to_string(shapes.input().c) + " (input " + ToString(shapes.input()) + ")");
  KeepShape(keys, shapes);
}

std::vector<ParameterSpec> AffineParameters(const LayerKeys&, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  const Shape vector{1, 1, 1, channels};
  return {{"weight", {channels}, vector}, {"bias", {channels}, vector}};
}
std::vector<ParameterSpec> LayerNormParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  std::vector<ParameterSpec> parameters = AffineParameters(keys, shapes);
  if (!keys.bias) parameters.pop_back();
  return parameters;
}
std::vector<ParameterSpec> GammaParameters(const LayerKeys&, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  return {{"weight", {channels}, {1, 1, 1, channels}}};
}
std::vector<ParameterSpec> FactorParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  return {{"weight", {channels}, {1, 1, 1, channels}, true, keys.value}};
}

// Constants: their values come from the keys or from a file of weights.
std::vector<ParameterSpec> AffineConstants(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t channels = shapes.output.c;
  const Shape vector{1, 1, 1, channels};
  return {{"factor", {channels}, vector, false, keys.factor},
          {"offset", {channels}, vector, false, keys.offset}};
}
backend::OpSpec AffineSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::AffineSpec>(op);
  spec.factor = op.parameters[0].value;
  spec.offset = op.parameters[1].value;
  return spec;
}

// The spec of a kind with gamma, or gamma and beta.
template <class Spec>
Spec GammaSpecOf(const OpArguments& op) {
  auto spec = SpecOf<Spec>(op);
  spec.gamma = op.parameters[0].value;
  spec.dgamma = op.parameters[0].gradient;
  if (op.parameters.size() > 1) {
    spec.beta = op.parameters[1].value;
    spec.dbeta = op.parameters[1].gradient;
  }
  spec.eps = static_cast<float>(op.keys.eps);
  return spec;
}
template <class Spec>
backend::OpSpec GroupedNormSpecOf(const OpArguments& op) {
  return GammaSpecOf<Spec>(op);
}
backend::OpSpec GroupNormSpecOf(const OpArguments& op) {
  auto spec = GammaSpecOf<backend::GroupNormSpec>(op);
  spec.groups = op.keys.groups;
  return spec;
}

KeyProblem CheckLrn(const LayerKeys& keys) {
  if (keys.size[0] == keys.size[1]) return {};
  return {"size", "one number for lrn, of channels; got two that differ"};
}
backend::OpSpec LrnSpecOf(const OpArguments& op) {
  auto spec = SpecOf<backend::LrnSpec>(op);
  spec.size = op.keys.size[0];
  spec.alpha = op.keys.alpha, spec.beta = op.keys.beta, spec.k = op.keys.k;
  return spec;
}

}  // namespace

std::vector<LayerKind> NormKinds() {
  return {
      {.name = backend::BatchNormSpec::kKind,
       .keys = {"eps", "momentum", "initial_beta"},
       .infer = KeepShape,
       .parameters = BatchNormParameters,
       .chooses_scale_with_batch_norms = true,
       .takes_amax_of_x = true,
       .takes_amax_of_dy = true,
       .keeps_input = true,
       .dx_in_place = true,
       .chain = ChainPart::kNorm,
       .spec = BatchNormSpecOf},
      // PyTorch's default is 1e-5; networks with this norm say 1e-6.
      {.name = backend::LayerNormSpec::kKind,
       .keys = {"eps", "bias"},
       .eps = 1e-6,
       .infer = KeepShape,
       .parameters = LayerNormParameters,
       .takes_amax_of_dy = true,
       .autocast_fp32 = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = GroupedNormSpecOf<backend::LayerNormSpec>},
      // Llama's default; torch.nn.RMSNorm without eps uses the machine epsilon of fp32.
      {.name = backend::RmsNormSpec::kKind,
       .keys = {"eps"},
       .infer = KeepShape,
       .parameters = GammaParameters,
       .takes_amax_of_dy = true,
       .autocast_fp32 = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = GroupedNormSpecOf<backend::RmsNormSpec>},
      {.name = backend::GroupNormSpec::kKind,
       .keys = {"groups", "eps"},
       .required = {"groups"},
       .infer = InferGroupNorm,
       .parameters = AffineParameters,
       .takes_amax_of_dy = true,
       .autocast_fp32 = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = GroupNormSpecOf},
      {.name = backend::ChannelScaleSpec::kKind,
       .keys = {"value"},
       .infer = KeepShape,
       .parameters = FactorParameters,
       .autocast_fp32 = true,
       .autocast_cpu_fp32 = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = WeightedSpec<backend::ChannelScaleSpec>},
      {.name = backend::AffineSpec::kKind,
       .keys = {"factor", "offset"},
       .infer = KeepShape,
       .parameters = AffineConstants,
       .constant = true,
       .dx_in_place = true,
       .spec = AffineSpecOf},
      // SSD's defaults.
      {.name = backend::L2NormalizeSpec::kKind,
       .keys = {"eps", "value"},
       .value = 20,
       .infer = KeepShape,
       .parameters = FactorParameters,
       .takes_amax_of_dy = true,
       .autocast_fp32 = true,
       .autocast_cpu_fp32 = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = GroupedNormSpecOf<backend::L2NormalizeSpec>},
      // A value of dx is computed from several values of dy.
      {.name = backend::LrnSpec::kKind,
       .keys = {"size", "alpha", "beta", "k"},
       .size = 5,
       .check = CheckLrn,
       .infer = KeepShape,
       .autocast_fp32 = true,
       .autocast_cpu_fp32 = true,
       .keeps_input = true,
       .spec = LrnSpecOf},
  };
}

}  // namespace ada::layers
