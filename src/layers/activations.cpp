// Functions of each value alone: relu, relu6, hardtanh, leaky_relu, sigmoid, tanh, silu,
// hardsigmoid, hardswish, gelu, softplus, elu; and prelu, whose slope is trained.
#include "io/text.h"
#include "layers/layer_kind.h"

namespace ada::layers {
namespace {

using backend::ActivationSpec;

// The row of a function, without keys.
// The slope is computed from the stored x in the backward pass, so each keeps its input. Where dx
// is dy or zero (relu6, hardtanh) it is not rounded.
template <class Function>
LayerKind FunctionKind(
    backend::OpSpec (*spec)(const OpArguments&) = PlainSpec<ActivationSpec<Function>>) {
  LayerKind kind{.name = Function::kKind,
                 .infer = KeepShape,
                 .keeps_input = true,
                 .dx_in_place = true,
                 .spec = spec};
  if (backend::kPassesDy<Function>) kind.rounds_gradient = [](const LayerKeys&) { return false; };
  return kind;
}
template <class Function>
LayerKind WithKeys(std::vector<std::string> keys, backend::OpSpec (*spec)(const OpArguments&)) {
  LayerKind kind = FunctionKind<Function>(spec);
  kind.keys = std::move(keys);
  return kind;
}

backend::OpSpec HardtanhSpecOf(const OpArguments& op) {
  auto spec = SpecOf<ActivationSpec<backend::Hardtanh>>(op);
  spec.function = {static_cast<float>(op.keys.min), static_cast<float>(op.keys.max)};
  return spec;
}
backend::OpSpec LeakyReluSpecOf(const OpArguments& op) {
  auto spec = SpecOf<ActivationSpec<backend::LeakyRelu>>(op);
  spec.function.slope = static_cast<float>(op.keys.slope);
  return spec;
}
backend::OpSpec GeluSpecOf(const OpArguments& op) {
  if (op.keys.approximate == "tanh") return SpecOf<ActivationSpec<backend::GeluTanh>>(op);
  return SpecOf<ActivationSpec<backend::Gelu>>(op);
}

backend::OpSpec SoftplusSpecOf(const OpArguments& op) {
  auto spec = SpecOf<ActivationSpec<backend::Softplus>>(op);
  spec.function = {static_cast<float>(op.keys.beta), static_cast<float>(op.keys.threshold)};
  return spec;
}
backend::OpSpec EluSpecOf(const OpArguments& op) {
  auto spec = SpecOf<ActivationSpec<backend::Elu>>(op);
  spec.function.alpha = static_cast<float>(op.keys.alpha);
  return spec;
}

// A slope for each channel, or one for all.
std::vector<ParameterSpec> PreluParameters(const LayerKeys& keys, const LayerShapes& shapes) {
  const std::int64_t slopes = keys.per_channel ? shapes.output.c : 1;
  return {{"weight", {slopes}, {1, 1, 1, slopes}, true, keys.value}};
}

KeyProblem CheckSoftplus(const LayerKeys& keys) {
  if (keys.beta > 0) return {};
  return {"beta", "must be above 0 for softplus, which divides by it"};
}
KeyProblem CheckBounds(const LayerKeys& keys) {
  if (keys.min < keys.max) return {};
  return {"max", "must be above min, " + ShortestText(keys.min)};
}

}  // namespace

std::vector<LayerKind> ActivationKinds() {
  // Rows that differ from their family's in more than keys.
  LayerKind hardtanh = WithKeys<backend::Hardtanh>({"min", "max"}, HardtanhSpecOf);
  hardtanh.check = CheckBounds;
  LayerKind softplus = WithKeys<backend::Softplus>({"beta", "threshold"}, SoftplusSpecOf);
  softplus.beta = 1, softplus.check = CheckSoftplus;
  softplus.autocast_fp32 = true;
  LayerKind gelu = WithKeys<backend::Gelu>({"approximate"}, GeluSpecOf);
  gelu.takes_amax_of_dy = true;
  LayerKind elu = WithKeys<backend::Elu>({"alpha"}, EluSpecOf);
  elu.alpha = 1;
  return {
      {.name = backend::ReluSpec::kKind,
       .infer = KeepShape,
       .rounds_output = false,
       .keeps_output = true,  // as the mask of its gradient
       .dx_in_place = true,
       .chain = ChainPart::kMask,
       .spec = PlainSpec<backend::ReluSpec>},
      FunctionKind<backend::Relu6>(),
      hardtanh,
      WithKeys<backend::LeakyRelu>({"slope"}, LeakyReluSpecOf),
      FunctionKind<backend::Sigmoid>(),
      FunctionKind<backend::Tanh>(),
      FunctionKind<backend::Silu>(),
      FunctionKind<backend::Hardsigmoid>(),
      FunctionKind<backend::Hardswish>(),
      gelu,
      softplus,
      elu,
      {.name = backend::PreluSpec::kKind,
       .keys = {"per_channel", "value"},
       .value = 0.25,
       .infer = KeepShape,
       .parameters = PreluParameters,
       .autocast_low = true,
       .keeps_input = true,
       .dx_in_place = true,
       .spec = WeightedSpec<backend::PreluSpec>},
  };
}

}  // namespace ada::layers
